"""What all figures have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairseq_depthwise.analysis.figures import COLOURS, write_figure


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
    assert not list(tmp_path.glob("*.tmp"))
