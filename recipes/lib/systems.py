"""A system of a recipe: an architecture, its training, and the published numbers.

The systems themselves are in the TOML files of ``recipes/systems``; ``recipes.toml`` says which of them belong to which
recipe. In such a file

- a table ``trainings.NAME`` is a :class:`TrainingTable`. ``like`` names a training whose fields it has unless it sets
  them itself, and ``in_recipe.RECIPE`` has what differs in one recipe;
- a table ``systems.NAME`` is a :class:`SystemTable`. Its ``training`` is a name, or a table as above;
  ``for_recipe.RECIPE`` has the fields that differ in one recipe;
- ``sizes.RECIPE`` has the values of names in braces, and ``parts`` texts of such names.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toml_files import entries, naming, read_table, read_toml, require_keys

from fairseq_compat import UserError

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
        differs: of ``DIFFERENCES``, those that are not its baseline's -> why.
        published: recipe -> numbers.
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
    paper: str = ""


@dataclass(frozen=True)
class TrainingTable:
    """A training in a file: see :class:`Training`.

    Attributes:
        dropout: residual, attention, activation.
        betas, epsilon, rate, warm_up, scheduler: of Adam.
        options: further ones, as on a command line.
        save_every, keep: updates between checkpoints, and how many of those are kept.
        keep_epochs: how many checkpoints of epochs are kept, without ``save_every``.
        patience: validations in a row that are no better before training ends; 0 for any number.
    """

    batch_tokens: int
    updates: int
    dropout: list[float] = field(metadata=entries(3))
    betas: str
    epsilon: str
    rate: float
    warm_up: int
    average: int
    max_tokens: int
    scheduler: str = "inverse_sqrt"
    options: str = ""
    save_every: int | None = None
    keep: int | None = None
    keep_epochs: int | None = None
    patience: int = 0
    up_to_best: bool = False
    target_tokens: bool = False


@dataclass(frozen=True)
class SystemTable:
    """A system in a file, in one recipe: see :class:`System`.

    Attributes:
        options: as on a command line.
        stages: layers and epochs of each, of the last one layers alone.
        stages_in_updates: the same with updates.
        published: recipe -> metric, score as printed, table, and test set where there are several.
    """

    arch: str
    about: str
    options: str = ""
    stages: list[list[int]] = field(default_factory=list, metadata=entries(1, 2))
    stages_in_updates: list[list[int]] = field(default_factory=list, metadata=entries(1, 2))
    baseline: str | None = None
    differs: dict[str, str] = field(default_factory=dict)
    published: dict[str, list[list[str]]] = field(default_factory=dict, metadata=entries(3, 4))
    paper: str = ""


#: The translation loss of all papers, computed fast, and what a model adds to it.
_LOSS = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1")

#: What a system may name in ``differs``: settings that it does not share with its baseline.
DIFFERENCES = ("dropout", "batch", "updates", "positions", "weight_decay", "average", "patience")

#: The part of a batch that fits into memory, by the encoder's layers at most. The program of shallow-to-deep training
#: has micro-batches of 4096 tokens up to 24 layers, 2731 for 30 and 36, and 2048 from 42 on.
_SHARES = ((24, 1.0), (36, 2 / 3), (10**6, 1 / 2))


def read_systems(name: str, recipe: str, recipes: Collection[str]) -> dict[str, System]:
    """Return the systems in ``recipes/systems/NAME.toml`` as they are in a recipe, one of ``recipes``.

    Raises:
        UserError: a table has a key that nothing reads, a value of another type than its field, or another mistake; the
            file, the table and mostly the key are named.
    """
    path = FOLDER / f"{name}.toml"
    content = read_toml(path)
    require_keys(str(path), content, ["trainings", "systems"], ["paper", "sizes", "parts"])
    paper = content.get("paper", "")
    # 1. Replace names in braces, where recipes have the same systems in different sizes.
    if "sizes" in content:
        with naming(f"{path}, sizes"):
            values = _size(content["sizes"], recipe, f"{path}, sizes", recipes)
        # Parts are texts with values of the size, and those of other parts above them.
        for part, text in content.get("parts", {}).items():
            with naming(f"{path}, parts.{part}"):
                values[part] = text.format(**values)
        content |= {key: _filled(content[key], values, f"{path}, {key}") for key in ("trainings", "systems")}

    # 2. Read the systems, with their changes for this recipe.
    systems = {}
    for label, table in content["systems"].items():
        where = f"{path}, systems.{label}"
        with naming(where):
            for key in ("for_recipe", "published"):
                require_keys(f"{where}.{key}", table.get(key, {}), [], recipes)
            fields = {"paper": paper, **table, **table.get("for_recipe", {}).get(recipe, {})}
            fields.pop("for_recipe", None)
            require_keys(where, fields, ["training"], fields)
            training = _training(fields.pop("training"), content["trainings"], recipe, where, recipes)
            systems[label] = _system(read_table(SystemTable, fields, where), training, where)
    for label in systems:
        _require_baselines(label, systems, str(path))
    return systems


def _require_baselines(label: str, systems: Mapping[str, System], path: str) -> None:
    """Raise UserError unless a system's baseline, the baseline of that, and so on are other systems of the file."""
    chain = [label]
    while (baseline := systems[chain[-1]].baseline) is not None:
        where = f"{path}, systems.{chain[-1]}, baseline"
        if baseline not in systems:
            raise UserError(f"{where} is {baseline!r}, which is none of the file's systems")
        if baseline in chain:
            raise UserError(f"{where} is {baseline!r}, and the baselines of that lead back to it")
        chain.append(baseline)


def _size(sizes: Mapping[str, Any], recipe: str, where: str, recipes: Collection[str]) -> dict[str, Any]:
    """Return the values of a recipe's size."""
    require_keys(where, sizes, [], recipes)
    for name, size in sizes.items():
        # A size that is like another has other values, but not other names.
        if "like" in size:
            require_keys(f"{where}.{name}", size, [], ["like", *_with_likes(size["like"], sizes)])
    return _with_likes(recipe, sizes)


def _filled(value: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return values of TOML with all names in braces replaced; a name alone becomes its value, such as a number."""
    # "{rate}" alone becomes a number; within "--rate {rate}" it becomes text.
    if isinstance(value, str):
        name = value[1:-1]
        with naming(where):
            return values[name] if value == f"{{{name}}}" and name in values else value.format(**values)
    if isinstance(value, list):
        return [_filled(item, values, where) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, values, f"{where}.{key}") for key, item in value.items()}
    return value


def _with_likes(reference: str | dict[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a table, or of one that a name stands for, with those of the table that it is like."""
    table = dict(tables[reference] if isinstance(reference, str) else reference)
    # A change for a recipe may replace one by the other.
    for fields in (table, *table.get("in_recipe", {}).values()):
        if "save_every" in fields and "keep_epochs" in fields:
            raise ValueError("save_every and keep_epochs exclude each other; give one of them")
    # Tables are like others, which may be like others again.
    if "like" not in table:
        return table
    inherited = _with_likes(table.pop("like"), tables)
    # Changes for recipes are merged field by field, not replaced as a whole.
    in_recipe = dict(inherited.get("in_recipe", {}))
    for recipe, changes in table.pop("in_recipe", {}).items():
        in_recipe[recipe] = {**in_recipe.get(recipe, {}), **changes}
    return {**inherited, **table, "in_recipe": in_recipe}


def _training(
    reference: str | dict[str, Any], trainings: Mapping[str, Any], recipe: str, where: str, recipes: Collection[str]
) -> Training:
    """Return the training that a table has, or that a name stands for, as it is in a recipe."""
    name = f"trainings.{reference}" if isinstance(reference, str) else "training"
    with naming(f"{where}, {name}"):
        fields = _with_likes(reference, trainings)
    in_recipe = fields.pop("in_recipe", {})
    require_keys(f"{where}, in_recipe", in_recipe, [], recipes)
    where = f"{where}, {name}"
    table = read_table(TrainingTable, {**fields, **in_recipe.get(recipe, {})}, where)

    # Every setting of a paper is on the command line, so that no default of fairseq matters.
    with naming(f"{where}, options"):
        further = shlex.split(table.options)
    options = (
        *("--optimizer", "adam", "--adam-betas", table.betas, "--adam-eps", table.epsilon),
        *("--clip-norm", "0.0", "--lr-scheduler", table.scheduler),
        *("--lr", f"{table.rate:.6g}", "--warmup-updates", str(table.warm_up)),
        *("--warmup-init-lr", "1e-7", *_LOSS, *further),
    )
    if table.save_every is not None:
        if table.keep is None:
            raise UserError(f"{where} has save_every and no keep, the number of checkpoints that are kept")
        # fairseq validates when it saves, so no validation of its own is asked for.
        save = ["--save-interval-updates", str(table.save_every), "--validate-interval", "100000"]
        save += ["--no-epoch-checkpoints", "--keep-interval-updates", str(table.keep)]
    else:
        if table.keep is not None:
            raise UserError(f"{where} has keep={table.keep} without save_every; checkpoints of epochs have keep_epochs")
        if table.keep_epochs is None:
            raise UserError(f"{where} has neither save_every nor keep_epochs, which say how many checkpoints are kept")
        save = ["--keep-last-epochs", str(table.keep_epochs)]
    # Training ends after so many validations without a better one.
    if table.patience:
        save += ["--patience", str(table.patience)]
    residual, attention, activation = table.dropout
    return Training(
        batch_tokens=table.batch_tokens,
        updates=table.updates,
        dropout=Dropout(residual, attention, activation),
        options=options,
        save=tuple(save),
        average=table.average,
        max_tokens=table.max_tokens,
        up_to_best=table.up_to_best,
        target_tokens=table.target_tokens,
    )


def _system(table: SystemTable, training: Training, where: str) -> System:
    """Return the system of a table."""
    published = {}
    for recipe, numbers in table.published.items():
        with naming(f"{where}, published.{recipe}"):
            published[recipe] = tuple(_published(*number) for number in numbers)
    require_keys(f"{where}, differs", table.differs, [], DIFFERENCES)
    with naming(f"{where}, options"):
        options = tuple(shlex.split(table.options))
    # Stages last epochs, or updates.
    if table.stages and table.stages_in_updates:
        raise UserError(f"{where} has both stages and stages_in_updates; give one of them")
    if table.stages_in_updates:
        stages = _stages(table.stages_in_updates, "updates")
    else:
        stages = _stages(table.stages, "epochs")
    return System(
        arch=table.arch,
        training=training,
        about=table.about,
        options=options,
        stages=stages,
        baseline=table.baseline,
        differs=table.differs,
        published=published,
        paper=table.paper,
    )


def _stages(lengths: Sequence[Sequence[int]], unit: str) -> tuple[Stage, ...]:
    """Return stages of layers and of epochs or updates each; the last one has no length."""
    stages = []
    for layers, *length in lengths:
        # Deeper models need more memory for each token.
        # The first entry that is deep enough.
        share = next(share for deepest, share in _SHARES if layers <= deepest)
        stage = Stage(layers, share=share)
        if length:
            stage = replace(stage, **{unit: length[0]})
        stages.append(stage)
    return tuple(stages)


def _published(metric: str, score: str, where: str, test: str = "") -> Published:
    """Return a number of a paper, with as many digits as are printed."""
    return Published(metric, float(score), where, digits=len(score.partition(".")[2]), test=test)
