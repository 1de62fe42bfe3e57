"""What a system of a recipe is: an architecture, how it is trained, and what was published for it.

The systems themselves are in ``depthwise_systems.py``, ``sdt_systems.py``, ``mute_systems.py``, ``iwslt_systems.py``
and ``small_systems.py``; ``recipes.py`` says which of them belong to which recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


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
    """The three dropouts of a system. Its command names them all, whatever its architecture's defaults are.

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
        named = {"dropout": self.residual, "attention-dropout": self.attention, "activation-dropout": self.activation}
        return tuple(word for name, value in named.items() for word in (f"--{name}", f"{value:g}"))


@dataclass(frozen=True)
class Training:
    """How a system is trained, whatever the machine.

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


def adam(betas: str, epsilon: str, rate: float, warm_up: int, scheduler: str = "inverse_sqrt") -> tuple[str, ...]:
    """Return options of Adam and of a rate that rises linearly and falls with the inverse square root."""
    return (
        *("--optimizer", "adam", "--adam-betas", betas, "--adam-eps", epsilon, "--clip-norm", "0.0"),
        *("--lr-scheduler", scheduler, "--lr", f"{rate:.6g}", "--warmup-updates", str(warm_up)),
        *("--warmup-init-lr", "1e-7"),
    )


def noam(width: int, warm_up: int) -> float:
    """Return the peak of "noam", width^-0.5 min(t^-0.5, t warm_up^-1.5), which is reached at t = warm_up."""
    return float((width * warm_up) ** -0.5)


#: The translation loss of all papers, computed fast, and what a model adds to it.
SMOOTHED = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1")
TIED = ("--share-all-embeddings",)
PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")


def depth(encoder: int, decoder: int) -> tuple[str, ...]:
    return ("--encoder-layers", str(encoder), "--decoder-layers", str(decoder))


def saved_every(updates: int, *, keep: int) -> tuple[str, ...]:
    """Return options that save every so many updates and keep so many checkpoints; fairseq validates when it saves."""
    return (
        *("--save-interval-updates", str(updates), "--validate-interval", "100000", "--no-epoch-checkpoints"),
        *("--keep-interval-updates", str(keep)),
    )
