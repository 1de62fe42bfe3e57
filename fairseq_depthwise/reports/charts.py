"""The charts of a report: which metrics over which axis, drawn by matplotlib as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairseq_depthwise.figures import save_figure, style_of
from fairseq_depthwise.reports.training_log import TRAINING, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Metric -> section, title and unit. Other metrics, but those ignored, are auxiliary losses of models, or gates.
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
#: Metrics that validation has, too.
_VALIDATED = ("loss", "nll_loss", "bleu")
_IGNORED = re.compile(
    r"(best|cuda|lr)_|.*_deviation$"
    r"|(ppl|peak_lr|stage|clip|ups|wpb|bsz|train_wall|wall|gb_free|accuracy|n_correct|total)$"
)
#: ``permutation_penalty_2``, and ``encoder_forget_gate_layer2b`` of the second cell in a layer.
_OF_LAYER = re.compile(r"(\w+?)_(?:layer)?\d+[ab]?$")

#: Points of a curve, about one for each pixel, and markers on it.
_POINTS, _MARKED = 500, 12
#: An axis is logarithmic from this ratio between largest and smallest value on.
_LOGARITHMIC = 200


class Axis(NamedTuple):
    """What a chart is drawn over: updates, or with the seconds of its ``unit`` the time of training."""

    name: str
    unit: int = 0


class Curve(NamedTuple):
    """A line of a chart; nan is a gap, and widths, if there are any, are those of a band around the line."""

    run: int
    validation: bool
    xs: np.ndarray
    ys: np.ndarray
    widths: np.ndarray


class Chart(NamedTuple):
    """A chart as an ``<svg>`` element."""

    section: str
    title: str
    svg: str


def charts_of(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yield the charts of all metrics that the runs have; metrics of single layers share a chart."""
    seconds = max(run.seconds for run in runs)
    for name, metrics in _metrics_by_chart(runs).items():
        axes = [Axis("updates")]
        if seconds and name in _VALIDATED:
            axes.append(_clock(seconds))
        section, title, unit = _described(name)
        for axis in axes:
            curves: list[Curve] = []
            for number, run in enumerate(runs):
                curves += _curves(number, run, metrics, axis)
            if curves:
                svg = _svg(runs, curves, axis, unit)
                yield Chart(section, f"{title} over time" if axis.unit else title, svg)


def _clock(seconds: float) -> Axis:
    """Return the axis with the unit of time that fits a training."""
    if seconds > 10800:
        return Axis("hours", 3600)
    if seconds > 120:
        return Axis("minutes", 60)
    return Axis("seconds", 1)


def _described(name: str) -> tuple[str, str, str]:
    """Return section, title and unit of a chart."""
    if name in _CHARTS:
        return _CHARTS[name]
    section = "Gates and cell states" if name.endswith(("_gate", "_cell_norm")) else "Auxiliary losses"
    return section, name.replace("_", " ").capitalize(), "mean"


def _metrics_by_chart(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the metrics that each chart shows, by the chart's name: a metric's, without the number of a layer."""
    names: dict[str, None] = {}
    for run in runs:
        for split in TRAINING:
            names.update(dict.fromkeys(run.series.get(split, ())))
    charts = {metric: [metric] for metric in _CHARTS}
    for name in names:
        match = _OF_LAYER.match(name)
        base = match[1] if match else name
        # A metric of a layer is left out where there is the mean over layers.
        if _IGNORED.match(base) or (base != name and base in names):
            continue
        if base == name:
            charts[name] = [name]
        else:
            charts.setdefault(base, []).append(name)
    return charts


def _curves(number: int, run: Run, metrics: Sequence[str], axis: Axis) -> Iterator[Curve]:
    """Yield the lines of a run that have a finite point."""
    for metric in metrics:
        for validation in (False, True) if metric in _VALIDATED else (False,):
            series = run.of(metric, validation=validation)
            xs = series["updates"]
            if axis.unit:
                xs = [seconds / axis.unit for seconds in series["seconds"]]
            widths = run.of(f"{metric}_deviation")["values"]
            curve = Curve(number, validation, _thinned(xs), _thinned(series["values"]), _thinned(widths))
            if np.isfinite(curve.ys).any():
                yield curve


def _thinned(values: Sequence[float]) -> np.ndarray:
    """Return the means of windows of nearly equal size; nan where a value is not finite."""
    # More points than pixels would only make the page larger.
    windows = np.array_split(values, min(len(values), _POINTS) or 1)
    return np.array([window.mean() for window in windows if window.size])


# --- drawing ---------------------------------------------------------------------------------------------------------


def _svg(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str) -> str:
    """Return a chart as an element of a page."""
    file = io.BytesIO()
    save_figure(file, "svg", (4.7, 3.0), partial(_draw, runs, curves, axis, unit))
    text = file.getvalue().decode()
    return text[text.index("<svg") :]  # equal ids of several charts stand for equal things


def _draw(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str, figure: Figure) -> None:
    """Draw curves, and dashed lines where a run grew."""
    axes = figure.subplots()
    for curve in curves:
        _draw_curve(axes, curve, hide_markers=unit == "bits" and not curve.validation)
    # Each run that grew has a row of depths above the chart.
    grown = [number for number in dict.fromkeys(curve.run for curve in curves) if runs[number].growth]
    for row, number in enumerate(grown):
        _draw_growth(axes, runs[number], style_of(number)["color"], axis, row)
    values = np.concatenate([curve.ys for curve in curves])
    # Such as a gradient's norm, or a loss that fell far.
    if 0 < _LOGARITHMIC * np.nanmin(values) < np.nanmax(values):
        axes.set_yscale("log")
    axes.set(xlabel=f"{axis.name} of training" if axis.unit else axis.name, ylabel=unit)
    axes.spines[["right", "top"]].set_visible(False)
    axes.grid(axis="y")


def _draw_curve(axes: Axes, curve: Curve, *, hide_markers: bool) -> None:
    _, _, xs, ys, widths = curve
    style = style_of(curve.run)
    if len(widths) == len(ys):
        axes.fill_between(xs, ys - widths, ys + widths, color=style["color"], alpha=0.15, linewidth=0)
    if hide_markers and len(xs) > 1:  # they would hide how noisy a loss is
        style |= {"marker": None, "linewidth": 0.8}
    axes.plot(xs, ys, **style, markersize=4.5, markevery=max(1, len(xs) // _MARKED))


def _draw_growth(axes: Axes, run: Run, color: str, axis: Axis, row: int) -> None:
    """Draw a dashed line at each growth, with the depth from there on in a row above the chart."""
    for growth in run.growth:
        place = growth.seconds / axis.unit if axis.unit else growth.update
        axes.axvline(place, color=color, linewidth=0.8, linestyle="--")
        above = axes.get_xaxis_transform()
        axes.text(place, 1.02 + 0.06 * row, str(growth.depth), color=color, ha="center", transform=above)
