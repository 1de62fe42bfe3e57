"""Figures of pages are drawn from records alone."""

from __future__ import annotations

from pathlib import Path

import figures
import pytest
from figure_files import figure_in

#: Figure -> a text in it: of analyses, of a schedule, and of a measurement.
TEXTS = {
    "analysis_gates": "depthwise",
    "connection_weights": "output",
    "learning_rate": "inverse_sqrt_restart, warm-up of 8,000 updates",
    "quality_cpu": "12+1 distilled",
}


@pytest.mark.parametrize("name", TEXTS)
def test_drawn_from_records(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["figures.py", name, "--output", str(tmp_path)])
    figures.main()
    assert f">{TEXTS[name]}<" in figure_in(tmp_path / f"{name}.svg").decode()


def test_an_unknown_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["figures.py", "gates", "--output", str(tmp_path)])
    with pytest.raises(figures.UserError, match="gates"):
        figures.main()
