"""A system of a recipe: an architecture, its training, and the published numbers.

The systems themselves are in the TOML files of ``recipes/systems``; ``recipes.toml`` says which of them belong to which
recipe. In such a file

- a table ``trainings.NAME`` has the fields of :class:`Training`, with these in the place of ``options`` and ``save``:
  ``betas``, ``epsilon``, ``rate``, ``warm_up`` and ``scheduler`` of Adam, further ``options`` as on a command line,
  ``save_every`` (updates) and ``keep`` (checkpoints) or ``keep_epochs``, and ``patience``. ``dropout`` is a list:
  residual, attention, activation. ``like`` names a training whose fields it has unless it sets them itself, and
  ``in_recipe.RECIPE`` has what differs in one recipe;
- a table ``systems.NAME`` has the fields of :class:`System`. Its ``training`` is a name, or a table as above;
  ``stages`` are lists of layers and epochs (``stages_in_updates``: of layers and updates), the last one of layers
  alone; a number of a paper is a list of metric, score as printed, table, and test set where there are several.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toml_files import read_toml

FOLDER = Path(__file__).resolve().parents[1] / "systems"


@dataclass(frozen=True)
class Published:
    """A number of a paper.

    Attributes:
        metric: of ``fairseq-depthwise score``; bleu94, bleu4, win_ratio for OPUS-100.
        score: as printed.
        where: the table.
        digits: behind the point, as printed.
        test: the test set, in recipes with several; empty for all of them.
    """

    metric: str
    score: float
    where: str
    digits: int = 2
    test: str = ""

    @property
    def text(self) -> str:
        return f"{self.score:.{self.digits}f} ({self.where})"

    @property
    def name(self) -> str:
        """Return the metric, with the test set where there are several."""
        return f"{self.test} {self.metric}" if self.test else self.metric


@dataclass(frozen=True)
class Dropout:
    """The three dropouts of a system. Its command names them all, so that no default of its architecture matters.

    Attributes:
        residual: of embeddings and sub-layers' outputs.
        attention: of attention weights.
        activation: inside feed-forward nets and hidden nets.
    """

    residual: float
    attention: float
    activation: float

    @property
    def options(self) -> tuple[str, ...]:
        return (
            *("--dropout", f"{self.residual:g}"),
            *("--attention-dropout", f"{self.attention:g}"),
            *("--activation-dropout", f"{self.activation:g}"),
        )


@dataclass(frozen=True)
class Training:
    """The training of a system, on any machine.

    Attributes:
        batch_tokens: tokens of an update, over all GPUs and accumulated steps.
        updates: how long; 0 where the stages of growth or ``options`` say so.
        dropout: equal for all systems that are compared.
        options: everything else that ``fairseq-train`` is told.
        save: options that say when checkpoints are written, and how many are kept.
        average: how many of the last checkpoints evaluation averages; 0 for the best on the validation set.
        up_to_best: average those up to the best on the validation set, not up to the end.
        max_tokens: of a GPU's batch in 80 GB of memory for the recipe's base size; ``MAX_TOKENS`` overrides it.
        target_tokens: ``batch_tokens`` are tokens of target sentences; without it, padded ones of the longer side, as
            ``--max-tokens`` counts them.
    """

    batch_tokens: int
    updates: int
    dropout: Dropout
    options: tuple[str, ...]
    save: tuple[str, ...]
    average: int
    max_tokens: int = 8192
    up_to_best: bool = False
    target_tokens: bool = False


@dataclass(frozen=True)
class Stage:
    """A stage of growth.

    Attributes:
        layers: of the encoder.
        epochs: how long it lasts; None where ``updates`` says so, and for the last stage, which ends with training.
        share: the part of ``max_tokens`` that fits.
        updates: how long it lasts, in place of epochs; the batch is the same in all stages then.
    """

    layers: int
    epochs: int | None = None
    share: float = 1.0
    updates: int | None = None


@dataclass(frozen=True)
class System:
    """One row of a paper's table, or a system of a small recipe.

    Attributes:
        arch: fairseq's ``--arch``.
        training: how it is trained.
        about: what it is, in words.
        options: of the model.
        stages: of growth, if it grows.
        baseline: the system that evaluation compares it with; where it has not been evaluated, with its own baseline.
        differs: of dropout, batch, updates and positions, those that are not its baseline's -> why.
        published: recipe -> numbers.
        for_recipe: recipe -> fields that differ there, ``published`` aside.
        paper: whose row it is; empty for systems of no paper.
    """

    arch: str
    training: Training
    about: str
    options: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    baseline: str | None = None
    differs: dict[str, str] = field(default_factory=dict)
    published: dict[str, tuple[Published, ...]] = field(default_factory=dict)
    for_recipe: dict[str, dict[str, Any]] = field(default_factory=dict)
    paper: str = ""

    def within(self, recipe: str) -> System:
        """Return the system as it is in a recipe."""
        return replace(self, **self.for_recipe.get(recipe, {}))


#: The translation loss of all papers, computed fast, and what a model adds to it.
_LOSS = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1")

#: The part of a batch that fits into memory, by the encoder's layers at most. The program of shallow-to-deep training
#: has micro-batches of 4096 tokens up to 24 layers, 2731 for 30 and 36, and 2048 from 42 on.
_SHARES = ((24, 1.0), (36, 2 / 3), (10**6, 1 / 2))


def read_systems(name: str, recipe: str) -> dict[str, System]:
    """Return the systems in ``recipes/systems/NAME.toml``, at the recipe's size if the file has sizes."""
    content = read_toml(FOLDER / f"{name}.toml")
    if "sizes" in content:
        values = _with_likes(recipe, content["sizes"])
        # Parts are texts with values of the size, and those of other parts above them.
        for part, text in content["parts"].items():
            values[part] = text.format(**values)
        content = {key: _filled(content[key], values) for key in ("trainings", "systems")}
    paper = content.get("paper", "")
    return {name: _system(table, content["trainings"], paper) for name, table in content["systems"].items()}


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return values of TOML with all names in braces replaced."""
    if isinstance(value, str):
        return value.format(**values)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    return value


def _with_likes(reference: str | dict[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a table, or of one that a name stands for, with those of the table that it is like."""
    table = dict(tables[reference] if isinstance(reference, str) else reference)
    # Tables are like others, which may be like others again.
    if "like" not in table:
        return table
    fields = _with_likes(table.pop("like"), tables)
    in_recipe = dict(fields.get("in_recipe", {}))
    for recipe, changes in table.pop("in_recipe", {}).items():
        in_recipe[recipe] = {**in_recipe.get(recipe, {}), **changes}
    return {**fields, **table, "in_recipe": in_recipe}


def _system(table: dict[str, Any], trainings: Mapping[str, Any], paper: str) -> System:
    """Return the system of a table in a file."""
    fields = _with_likes(table["training"], trainings)
    in_recipe = fields.pop("in_recipe", {})
    for_recipe: dict[str, dict[str, Any]] = {}
    # A training may differ in a recipe, and so may fields of the system.
    for recipe, changes in in_recipe.items():
        for_recipe[recipe] = {"training": _training({**fields, **changes})}
    for recipe, changes in table.get("for_recipe", {}).items():
        in_this = for_recipe.setdefault(recipe, {})
        in_this |= changes
        if "stages" in changes:
            in_this["stages"] = _stages(changes["stages"], "epochs")

    published = {}
    for recipe, numbers in table.get("published", {}).items():
        published[recipe] = tuple(_published(*number) for number in numbers)
    # Stages last epochs, or updates.
    if "stages_in_updates" in table:
        stages = _stages(table["stages_in_updates"], "updates")
    else:
        stages = _stages(table.get("stages", ()), "epochs")
    return System(
        arch=table["arch"],
        training=_training(fields),
        about=table["about"],
        options=tuple(shlex.split(table.get("options", ""))),
        stages=stages,
        baseline=table.get("baseline"),
        differs=table.get("differs", {}),
        published=published,
        for_recipe=for_recipe,
        paper=table.get("paper", paper),
    )


def _training(fields: Mapping[str, Any]) -> Training:
    """Return the training with the fields of a file; numbers of a size are texts there."""
    options = (
        *("--optimizer", "adam", "--adam-betas", fields["betas"], "--adam-eps", fields["epsilon"]),
        *("--clip-norm", "0.0", "--lr-scheduler", fields.get("scheduler", "inverse_sqrt")),
        *("--lr", f"{float(fields['rate']):.6g}", "--warmup-updates", str(fields["warm_up"])),
        *("--warmup-init-lr", "1e-7", *_LOSS, *shlex.split(fields.get("options", ""))),
    )
    if "save_every" in fields:
        # fairseq validates when it saves, so no validation of its own is asked for.
        save = ["--save-interval-updates", str(fields["save_every"]), "--validate-interval", "100000"]
        save += ["--no-epoch-checkpoints", "--keep-interval-updates", str(fields["keep"])]
    else:
        save = ["--keep-last-epochs", str(fields["keep_epochs"])]
    # Training ends after so many validations without a better one.
    patience = int(fields.get("patience", 0))
    if patience:
        save += ["--patience", str(patience)]
    residual, attention, activation = (float(probability) for probability in fields["dropout"])
    return Training(
        batch_tokens=int(fields["batch_tokens"]),
        updates=int(fields["updates"]),
        dropout=Dropout(residual, attention, activation),
        options=options,
        save=tuple(save),
        average=fields["average"],
        max_tokens=int(fields["max_tokens"]),
        up_to_best=fields.get("up_to_best", False),
        target_tokens=fields.get("target_tokens", False),
    )


def _stages(lengths: Sequence[Sequence[Any]], unit: str) -> tuple[Stage, ...]:
    """Return stages of layers and of epochs or updates each; the last one has no length."""
    stages = []
    for layers, *length in lengths:
        # Deeper models need more memory for each token.
        share = next(share for deepest, share in _SHARES if int(layers) <= deepest)
        stage = Stage(int(layers), share=share)
        if length:
            stage = replace(stage, **{unit: int(length[0])})
        stages.append(stage)
    return tuple(stages)


def _published(metric: str, score: str, where: str, test: str = "") -> Published:
    """Return a number of a paper, with as many digits as are printed."""
    return Published(metric, float(score), where, digits=len(score.partition(".")[2]), test=test)
