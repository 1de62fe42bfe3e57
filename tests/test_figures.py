"""What all figures have in common."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from fairseq_depthwise.figures import COLOURS, write_figure


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_the_same_numbers_are_the_same_file(form: str, tmp_path: Path) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([1, 2, 3], [0.3, 0.1, 0.2], color=COLOURS[0], marker="o", label="a line")
        axes.legend()

    written = []
    for name in ("one", "two"):
        write_figure(str(tmp_path / f"{name}.{form}"), (4, 3), draw)
        written.append((tmp_path / f"{name}.{form}").read_bytes())
    assert written[0] == written[1]
    assert not list(tmp_path.glob("*.fairseq-unfinished"))


def test_the_same_wherever_objects_lie_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kiwisolver  # comes with matplotlib

    # The variables of the layout lie in another order at each drawing, as they may after other work.
    mixed, spare, new_variable = random.Random(1), [], kiwisolver.Variable

    def variable(name: str) -> kiwisolver.Variable:
        one = spare.pop()
        one.setName(name)
        return one

    def draw(figure: Any) -> None:
        for part in figure.subfigures(3, 1):
            part.suptitle("a part")
            panels = part.subplots(3, 1, height_ratios=(3, 7, 11))
            for axes in panels:
                axes.plot([0, 1], [0, 1])
                axes.set(xticks=[], yticks=[])
            image = panels[0].imshow([[0.3, 0.1], [0.2, 0.4]], aspect="auto")
            part.colorbar(image, ax=list(panels), label="a number", ticks=[])
            part.legend(panels[1].lines, ["a line"], loc="outside lower center")

    monkeypatch.setattr(kiwisolver, "Variable", variable)
    path, written = tmp_path / "figure.svg", set()
    for _ in range(4):
        spare += [new_variable() for _ in range(1000)]
        mixed.shuffle(spare)
        write_figure(str(path), (7, 6), draw)
        written.add(path.read_bytes())
    assert len(written) == 1
