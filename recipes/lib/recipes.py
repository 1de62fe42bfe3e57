"""The recipes of ``recipes/recipes.toml``: their languages, their systems, and how they are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from systems import System, read_systems
from toml_files import read_toml, require_keys

from fairseq_compat import UserError


@dataclass(frozen=True)
class Recipe:
    """A corpus with its systems.

    Attributes:
        systems: by name.
        metrics: of ``fairseq-depthwise score``, the paper's first.
        languages: source and target; ``SOURCE`` and ``TARGET`` say otherwise where ``prepare.sh`` takes them.
        text: options that say how raw text becomes tokens, except the file of subwords; checkpoints record them, so
            that ``fairseq-depthwise translate`` needs none of them.
        subwords: the option for the file of subwords, and its name in ``data-bin``; empty if tokens are words.
        beam, length_penalty: of evaluation.
        needs_gpu: whether training on a CPU would take days.
        many: whether one model is trained for many languages.
    """

    systems: dict[str, System]
    metrics: Sequence[str]
    languages: Sequence[str]
    text: Sequence[str] = ("--tokenizer", "moses_normalized", "--bpe", "subword_nmt")
    subwords: Sequence[str] = ("--bpe-codes", "bpe.codes")
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


def _recipe(name: str, table: dict[str, Any]) -> Recipe:
    """Return a recipe from its table in the file."""
    optional = [field.name for field in fields(Recipe)]
    require_keys(f"{_PATH}, {name}", table, ["systems", "metrics", "languages"], [*optional, "names", "published_only"])
    systems: dict[str, System] = {}
    for file in table.pop("systems"):
        systems |= read_systems(file, name, _TABLES)

    # The order of names is that of tables.
    names = table.pop("names", [])
    published_only = table.pop("published_only", False)
    if published_only:
        published = [label for label, system in systems.items() if name in system.published]
        baselines = [systems[label].baseline for label in published]
        names += [label for label in systems if label in published or label in baselines]
    if names or published_only:
        systems = {label: systems[label] for label in names}
    return Recipe(systems=systems, **table)


_PATH = Path(__file__).parent.parent / "recipes.toml"
_TABLES = read_toml(_PATH)
RECIPES = {name: _recipe(name, table) for name, table in _TABLES.items()}


def system_of(recipe: str, name: str) -> System:
    """Return the system of a recipe; raise UserError if the recipe does not have it."""
    systems = RECIPES[recipe].systems
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
