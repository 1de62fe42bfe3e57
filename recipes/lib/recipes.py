"""The recipes of ``recipes/recipes.toml``: their languages, their systems, and how they are scored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from systems import FOLDER, System, read_systems
from toml_files import entries, naming, read_table, read_toml

from fairseq_compat import UserError

PATH = Path(__file__).parent.parent / "recipes.toml"

#: What OPUS-100's papers print instead of a metric, behind the group of languages, such as "en-xx bleu94".
_OF_LANGUAGES = ("bleu94", "bleu4", "win_ratio")


@dataclass(frozen=True)
class RecipeSettings:
    """What a recipe is, apart from its systems.

    Attributes:
        metrics: of ``fairseq-depthwise score``, the paper's first.
        languages: source and target; ``SOURCE`` and ``TARGET`` say otherwise where ``prepare.sh`` takes them.
        text: options that say how raw text becomes tokens, except the file of subwords; checkpoints record them, so
            that ``fairseq-depthwise translate`` needs none of them.
        subwords: the option for the file of subwords, and its name in ``data-bin``; empty if tokens are words.
        beam, length_penalty: of evaluation.
        needs_gpu: whether training on a CPU would take days.
        many: whether one model is trained for many languages.
    """

    metrics: list[str]
    languages: list[str] = field(metadata=entries(2))
    text: list[str] = field(default_factory=lambda: ["--tokenizer", "moses_normalized", "--bpe", "subword_nmt"])
    subwords: list[str] = field(default_factory=lambda: ["--bpe-codes", "bpe.codes"], metadata=entries(0, 2))
    beam: int = 4
    length_penalty: float = 0.6
    needs_gpu: bool = True
    many: bool = False

    def text_options(self, data: Path) -> list[str]:
        """Return the options that say how raw text becomes tokens, with the subwords of ``data``, a ``data-bin``.

        Text that came as tokens has its own options in ``data``, where ``prepare.sh`` wrote them.
        """
        options = list(self.text)
        file_of_options = data / "text_options.txt"
        if file_of_options.exists():
            options = file_of_options.read_text(encoding="utf-8").split()
        if self.subwords:
            option, file = self.subwords
            options += [option, str(data / file)]
        return options


@dataclass(frozen=True)
class RecipeTable(RecipeSettings):
    """A recipe in the file.

    Attributes:
        systems: names of files in ``recipes/systems``.
        published_only: leave out systems without a number for this recipe, except their baselines.
        names: of the systems that it has, in their order; with ``published_only`` those that it has besides.
    """

    systems: list[str] = field(kw_only=True)
    published_only: bool = False
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recipe(RecipeSettings):
    """A corpus with its systems, by name."""

    systems: dict[str, System] = field(kw_only=True)


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return the recipes by name; raise UserError for a mistake in their file or in one of their systems.

    They are read when they are needed and not on import, so that a mistake ends a command like any other.
    """
    tables = read_toml(PATH)
    return {name: _recipe(name, table, tables) for name, table in tables.items()}


def _recipe(name: str, content: Mapping[str, Any], recipes: Collection[str]) -> Recipe:
    """Return a recipe from its table in the file, one of ``recipes``."""
    where = f"{PATH}, {name}"
    table = read_table(RecipeTable, content, where)
    systems: dict[str, System] = {}
    for file in table.systems:
        path = f"{FOLDER / file}.toml"
        with naming(path):
            of_file = read_systems(file, name, recipes)
        for label, system in of_file.items():
            _require_known_metrics(system, name, table, f"{path}, systems.{label}")
        systems |= of_file

    # The order of names is that of tables.
    names = list(table.names)
    if table.published_only:
        published = [label for label, system in systems.items() if name in system.published]
        baselines = [systems[label].baseline for label in published]
        names += [label for label in systems if label in published or label in baselines]
    if names or table.published_only:
        with naming(f"{where}, names"):
            systems = {label: systems[label] for label in names}
    settings = {member.name: getattr(table, member.name) for member in fields(RecipeSettings)}
    return Recipe(systems=systems, **settings)


def _require_known_metrics(system: System, recipe: str, table: RecipeSettings, where: str) -> None:
    """Raise UserError if a published number has a metric that evaluation of the recipe does not print."""
    known = _OF_LANGUAGES if table.many else table.metrics
    for number in system.published.get(recipe, ()):
        metric = number.metric.split()[-1] if table.many else number.metric
        if metric not in known:
            raise UserError(
                f"{where}, published.{recipe} has the metric {metric!r}, which is none of {', '.join(known)}"
            )


def system_of(recipe: str, name: str) -> System:
    """Return the system of a recipe; raise UserError if the recipe does not have it."""
    systems = all_recipes()[recipe].systems
    if name not in systems:
        raise UserError(f"{recipe} has no system {name!r}; train.sh {recipe} --list names all {len(systems)}")
    return systems[name]


def baselines_of(recipe: str, system: System) -> list[str]:
    """Return the system's baseline, the baseline of that, and so on."""
    baselines = []
    while system.baseline is not None:
        baselines.append(system.baseline)
        system = system_of(recipe, system.baseline)
    return baselines
