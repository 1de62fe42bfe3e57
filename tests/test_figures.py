"""What all figures have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairseq_depthwise.figures import COLORS, write_figure


@pytest.mark.parametrize(("form", "head"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_the_suffix_is_the_format(form: str, head: bytes, tmp_path: Path) -> None:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot([1, 2, 3], [0.3, 0.1, 0.2], color=COLORS[0], marker="o", label="a line")
        axes.legend()

    write_figure(str(tmp_path / f"one.{form}"), (4, 3), draw)
    assert (tmp_path / f"one.{form}").read_bytes().startswith(head)
    assert [path.name for path in tmp_path.iterdir()] == [f"one.{form}"]
