"""What the figure of a probe shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.figure import Figure

from fairseq_depthwise.analysis.probe import report
from fairseq_depthwise.analysis.probe.record import BASELINE, ProbeRow


@pytest.mark.parametrize(("intact", "expected"), [(20.0, [-50.0]), (0.0, [25.0])])
def test_a_model_that_scores_nothing_is_drawn_with_what_is_unexplained(
    intact: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Figure()

    def draw_only(path: str, size: Any, draw: Callable[[Figure], None]) -> None:
        draw(figure)

    monkeypatch.setattr(report, "write_figure", draw_only)
    linear = ProbeRow("encoder.1", "", intact / 2, "BLEU", "", error=1.0, unexplained=0.25, positions=9)
    model = report.ProbedModel("model.pt", "transformer", (ProbeRow(BASELINE, "", intact, "BLEU", ""), linear))
    report.write_probe_figure("figure.svg", [model], ["model"])
    (axes,) = figure.axes
    assert list(axes.lines[-1].get_ydata()) == expected
