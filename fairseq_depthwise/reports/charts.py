"""The charts of a report: which metrics over which axis, drawn by matplotlib as SVG in the colors of the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairseq_depthwise.figures import COLORS, MARKERS, save_figure
from fairseq_depthwise.reports.training_log import TRAINING, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Metric, section, title and unit. Other metrics, but those ignored, are auxiliary losses of models, or gates.
_CHARTS = {
    "loss": ("Loss", "Loss", "bits"),
    "nll_loss": ("Loss", "Loss without smoothing and penalties", "bits"),
    "bleu": ("BLEU", "BLEU of the validation set", "BLEU"),
    "lr": ("Learning rate and depth", "Learning rate", "learning rate"),
    "depth": ("Learning rate and depth", "Depth", "layers"),
    "gnorm": ("Gradient and speed", "Norm of the gradient", "L2 norm"),
    "loss_scale": ("Gradient and speed", "Loss scale of half precision", "factor"),
    "wps": ("Gradient and speed", "Speed", "target tokens per second"),
}
#: Metrics that validation has, too; units of what changes in steps.
_VALIDATED, _STEPS = ("loss", "nll_loss", "bleu"), ("layers", "factor")
_IGNORED = re.compile(
    r"(best|cuda|lr)_|.*_deviation$"
    r"|(ppl|peak_lr|stage|clip|ups|wpb|bsz|train_wall|wall|gb_free|accuracy|n_correct|total)$"
)
#: ``permutation_penalty_2``, and ``encoder_forget_gate_layer2b`` of the second cell in a layer.
_OF_LAYER = re.compile(r"(\w+?)_(?:layer)?\d{1,9}[ab]?$")

#: Points of a curve, about one for each pixel, and markers on it.
_POINTS, _MARKED = 500, 12
#: An axis is logarithmic from this ratio between largest and smallest value on.
_LOGARITHMIC = 200
#: Placeholders that the page's style sheet replaces: of text and axes, and of runs.
_INK, _RUN = "#010203", "#0a0b{:02x}"


class Curve(NamedTuple):
    """A line of a chart; nan is a gap, and widths are those of a band around the line."""

    run: int
    kind: str  # "training" or "validation"
    xs: list[float]
    ys: list[float]
    widths: list[float]


class Chart(NamedTuple):
    """A chart; ``grown`` has the number of a run, the place on the x axis and the new depth of each growth."""

    section: str
    title: str
    x: str
    y: str
    curves: list[Curve]
    grown: list[tuple[int, float, int]]


def charts_of(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yield the charts of all metrics that the runs have; those of single layers are lines of one chart."""
    names = dict.fromkeys(name for run in runs for split in TRAINING for name in run.series.get(split, ()))
    charts = {metric: [metric] for metric in _CHARTS}
    for name in names:
        base = match[1] if (match := _OF_LAYER.match(name)) else name
        if (base == name or base not in names) and not _IGNORED.match(base):
            charts[base] = [*charts.get(base, ()), name] if base != name else [name]
    seconds = max(run.seconds for run in runs)
    for base, metrics in charts.items():
        section = "Gates and cell states" if base.endswith(("_gate", "_cell_norm")) else "Auxiliary losses"
        section, title, unit = _CHARTS.get(base, (section, base.replace("_", " ").capitalize(), "mean"))
        if unit == "bits":
            per = {"sentence" if "--sentence-avg" in run.options else "token" for run in runs}
            unit = f"bits per {' or '.join(sorted(per))}"
        for over in ("", " over time") if base in _VALIDATED and seconds else ("",):
            x, scale = ("hours", 3600) if seconds > 10800 else ("minutes", 60) if seconds > 120 else ("seconds", 1)
            x = f"{x} of training" if over else "updates"
            curves = [
                curve
                for number, run in enumerate(runs)
                for curve in _curves(number, run, metrics, unit, scale if over else 0)
            ]
            drawn = {curve.run for curve in curves}
            grown = [
                (number, after / scale if over else update, depth)
                for number, run in enumerate(runs)
                for update, after, depth in run.growth
                if number in drawn
            ]
            if curves:
                yield Chart(section, title + over, x, unit, curves, grown)


def _curves(number: int, run: Run, metrics: Sequence[str], unit: str, scale: int) -> Iterator[Curve]:
    """Yield the lines of a run that have a finite point, over updates or, with a scale, over time."""
    for metric in metrics:
        for kind in ("training", "validation") if metric in _VALIDATED else ("training",):
            series = run.of(metric, validation=kind == "validation")
            xs = [seconds / scale for seconds in series["seconds"]] if scale else series["updates"]
            columns = (xs, series["values"], run.of(f"{metric}_deviation")["values"])
            curve = Curve(number, kind, *(_thinned(column, steps=unit in _STEPS) for column in columns))
            if np.isfinite(curve.ys).any():
                yield curve


def _thinned(values: Sequence[float], *, steps: bool) -> list[float]:
    """Return the means, or of steps the last values, of windows of equal size; nan where one is not finite."""
    size = max(1, math.ceil(len(values) / _POINTS))
    windows = [values[start : start + size] for start in range(0, len(values), size)]
    return [window[-1] if steps else fmean(window) for window in windows]


def draw_svg(chart: Chart, prefix: str) -> str:
    """Return a chart as an ``<svg>`` element, all ids of which begin with ``prefix``."""
    file = io.BytesIO()
    save_figure(file, "svg", (4.7, 3.0), lambda figure: _draw(figure, chart))
    svg = file.getvalue().decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"', '<svg aria-hidden="true"', svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+|\n", r"\1", path[0]), svg)
    svg = re.sub(r"#0a0b(..)", lambda run: f"var(--run-{int(run[1], 16)})", svg).replace(_INK, "currentColor")
    return re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)


def marker_of(run: int) -> int:
    """Return the number of a run's marker: another one where the colors are used a second time."""
    return (run + run // len(COLORS)) % len(MARKERS)


def _draw(figure: Figure, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes = figure.subplots()
    for curve in chart.curves:
        _draw_curve(axes, curve, chart.y)
    rows = sorted({run for run, _, _ in chart.grown})
    for run, place, depth in chart.grown:
        color = _RUN.format(run % len(COLORS))
        axes.axvline(place, color=color, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.8)
        above = (place, 1 + 0.06 * rows.index(run))
        axes.annotate(
            f"{depth}", above, xycoords=("data", "axes fraction"), color=color, size=9, ha="center", va="bottom"
        )
    values = [y for curve in chart.curves for y in curve.ys if math.isfinite(y)]
    if min(values) > 0 and max(values) / min(values) > _LOGARITHMIC:
        axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=chart.x == "updates", steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if chart.x == "updates" else "{x:g}"))
    if chart.y == "layers":
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel(chart.x, color=_INK)
    axes.set_ylabel(chart.y, color=_INK)
    axes.tick_params(which="both", colors=_INK)
    axes.yaxis.get_offset_text().set_color(_INK)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.spines[["right", "top"]].set_visible(False)
    axes.grid(axis="y", color=_INK, alpha=0.15)
    for patch in (figure.patch, axes.patch):
        patch.set_visible(False)  # the page's background is seen


def _draw_curve(axes: Any, curve: Curve, y: str) -> None:
    color, validation = _RUN.format(curve.run % len(COLORS)), curve.kind == "validation"
    if len(curve.widths) == len(curve.ys):
        ys, widths = np.array(curve.ys), np.array(curve.widths)
        axes.fill_between(curve.xs, ys - widths, ys + widths, color=color, alpha=0.15, linewidth=0)
    # The color of a single thin line is hard to see; a single point is no line at all.
    thin = y.startswith("bits") and not validation and len(curve.xs) > 1
    every = max(1, len(curve.xs) // _MARKED)
    axes.plot(
        curve.xs,
        curve.ys,
        color=color,
        linewidth=1.4 if validation else 1.1,
        marker=None if thin else MARKERS[marker_of(curve.run)],
        markevery=1 if validation and len(curve.xs) <= 2 * _MARKED else (every // 2, every),
        markersize=4.5,
        drawstyle="steps-post" if y in _STEPS else "default",
        alpha=0.75 if thin else 1,
    )
