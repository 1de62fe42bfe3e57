"""Writes the table of systems into the README of each recipe.

python recipes/lib/readme.py           between the marks <!-- systems --> and <!-- end of systems -->
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipe_step import run_step
from systems import System

from fairseq_compat.files import atomic_write
from fairseq_depthwise.tables import Table
from recipes import all_recipes, system_of

BEGIN, END = "<!-- systems -->\n", "<!-- end of systems -->\n"


def main() -> None:
    for recipe in all_recipes():
        path = Path(__file__).parent.parent / recipe / "README.md"
        head, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        if not begin:  # the page names the recipe that has the same systems
            continue
        _, end, tail = rest.partition(END)
        with atomic_write(path) as file:
            file.write((head + begin + table(recipe) + end + tail).encode())


def table(recipe: str) -> str:
    """Return the systems of a recipe as Markdown, and below them where they differ from their baselines."""
    systems = {name: system_of(recipe, name) for name in all_recipes()[recipe].systems}
    columns = ["system", "what it is", "updates", "batch, tokens", "dropout"]
    if any(recipe in system.published for system in systems.values()):
        columns.append("published")
    rows = Table(*columns)
    differences = ""
    for name, system in systems.items():
        training, dropout = system.training, system.training.dropout
        numbers = "; ".join(f"{number.name} {number.text}" for number in system.published.get(recipe, ()))
        rows.add(
            {
                "system": f"`{name}`",
                "what it is": system.about,
                "updates": _length(system),
                "batch, tokens": f"{training.batch_tokens:,}" + (" target" if training.target_tokens else ""),
                "dropout": f"{dropout.residual:g}, {dropout.attention:g}, {dropout.activation:g}",
                "published": f"{system.paper}: {numbers}" if numbers else "-",
            }
        )
        for subject, reason in system.differs.items():
            differences += f"- `{name}` and its baseline `{system.baseline}` differ in {subject}: {reason}.\n"
    return rows.markdown() + (f"\n{differences}" if differences else "")


def _length(system: System) -> str:
    """Return how long a system is trained, in words."""
    training = system.training
    if system.stages:
        layers = _listed([str(stage.layers) for stage in system.stages])
        unit = "updates" if any(stage.updates for stage in system.stages) else "epochs"
        lengths = _listed([f"{stage.updates or stage.epochs or 'all further'}" for stage in system.stages])
        return f"{layers} layers for {lengths} {unit}"
    if training.updates:
        return f"{training.updates:,}"
    return f"{training.options[training.options.index('--max-epoch') + 1]} epochs"


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


if __name__ == "__main__":
    run_step(main)
