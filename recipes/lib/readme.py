"""Writes the table of systems into the README of each recipe.

python recipes/lib/readme.py           between the marks <!-- systems --> and <!-- end of systems -->
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipe_step import run_step

from fairseq_compat.files import atomic_write
from fairseq_depthwise import tables
from recipes import RECIPES, system_of

BEGIN, END = "<!-- systems -->\n", "<!-- end of systems -->\n"


def main() -> None:
    for recipe in RECIPES:
        path = Path(__file__).parent.parent / recipe / "README.md"
        head, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        if not begin:  # the page names the recipe that has the same systems
            continue
        _, end, tail = rest.partition(END)
        with atomic_write(path) as file:
            file.write((head + begin + table(recipe) + end + tail).encode())


def table(recipe: str) -> str:
    """Return the systems of a recipe as Markdown."""
    published = any(recipe in system.published for system in RECIPES[recipe].systems.values())
    rows = [["system", "what it is", "updates", "batch, tokens", "dropout", *(["published"] if published else [])]]
    differences = []
    for name in RECIPES[recipe].systems:
        system = system_of(recipe, name)
        training = system.training
        if system.stages:
            layers = _listed([str(stage.layers) for stage in system.stages])
            unit = "updates" if any(stage.updates for stage in system.stages) else "epochs"
            lengths = _listed([f"{stage.updates or stage.epochs or 'all further'}" for stage in system.stages])
            length = f"{layers} layers for {lengths} {unit}"
        elif training.updates:
            length = f"{training.updates:,}"
        else:
            length = f"{training.options[training.options.index('--max-epoch') + 1]} epochs"
        batch = f"{training.batch_tokens:,}" + (" target" if training.target_tokens else "")
        dropout = training.dropout
        row = [f"`{name}`", system.about, length, batch]
        row.append(f"{dropout.residual:g}, {dropout.attention:g}, {dropout.activation:g}")
        if published:
            numbers = "; ".join(f"{score.name} {score.text}" for score in system.published.get(recipe, ()))
            row.append(f"{system.paper}: {numbers}" if numbers else "-")
        rows.append(row)
        differences += [
            f"- `{name}` and its baseline `{system.baseline}` differ in {what}: {why}.\n"
            for what, why in system.differs.items()
        ]
    return tables.markdown(rows) + "".join(["\n", *differences] if differences else [])


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


if __name__ == "__main__":
    run_step(main)
