"""The charts of a report: metrics over updates or time, drawn by matplotlib as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairseq_depthwise.figures import draw_svg, style_of
from fairseq_depthwise.reports.training_log import TRAINING, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Metric -> section, title and unit. Other metrics, unless ignored, are auxiliary losses of models, or gates.
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
#: Metrics of training that are also measured in validation.
_VALIDATED = ("loss", "nll_loss", "bleu")
_IGNORED = re.compile(
    r"(best|cuda|lr)_|.*_deviation$"
    r"|(ppl|peak_lr|stage|clip|ups|wpb|bsz|train_wall|wall|gb_free|accuracy|n_correct|total)$"
)
#: ``permutation_penalty_2``, and ``encoder_forget_gate_layer2b`` of the second cell in a layer.
_OF_LAYER = re.compile(r"(\w+?)_(?:layer)?\d+[ab]?$")

#: Points of a curve, about one for each pixel, and markers on it.
_POINTS, _MARKED = 500, 12
#: Smallest ratio between largest and smallest value for which an axis is logarithmic.
_LOGARITHMIC = 200


class Axis(NamedTuple):
    """The x axis of a chart: updates, or the time of training in a ``unit`` of that many seconds."""

    name: str
    unit: int = 0


class Curve(NamedTuple):
    """A line of a chart; nan is a gap. ``widths`` of a band around the line may be empty."""

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


def draw_charts(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yield a chart for each metric of the runs; the metrics of single layers share a chart."""
    seconds = max(run.seconds for run in runs)
    for name, metrics in _group_metrics(runs).items():
        axes = [Axis("updates")]
        if seconds and name in _VALIDATED:
            axes.append(_choose_time_axis(seconds))
        section, title, unit = _describe_chart(name)
        for axis in axes:
            curves: list[Curve] = []
            for number, run in enumerate(runs):
                curves += _make_curves(number, run, metrics, axis)
            if curves:
                svg = _draw_svg(runs, curves, axis, unit)
                yield Chart(section, f"{title} over time" if axis.unit else title, svg)


def _choose_time_axis(seconds: float) -> Axis:
    """Return the axis with a unit of time that suits the length of a training."""
    if seconds > 10800:
        return Axis("hours", 3600)
    if seconds > 120:
        return Axis("minutes", 60)
    return Axis("seconds", 1)


def _describe_chart(name: str) -> tuple[str, str, str]:
    """Return section, title and unit of a chart."""
    if name in _CHARTS:
        return _CHARTS[name]
    section = "Gates and cell states" if name.endswith(("_gate", "_cell_norm")) else "Auxiliary losses"
    return section, name.replace("_", " ").capitalize(), "mean"


def _group_metrics(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return chart -> its metrics; a chart is named after its metric, without the number of a layer."""
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


def _make_curves(number: int, run: Run, metrics: Sequence[str], axis: Axis) -> Iterator[Curve]:
    """Yield the lines of a run that have at least one finite point."""
    for metric in metrics:
        for validation in (False, True) if metric in _VALIDATED else (False,):
            series = run.get_series(metric, validation=validation)
            xs = series["updates"]
            if axis.unit:
                xs = [seconds / axis.unit for seconds in series["seconds"]]
            widths = run.get_series(f"{metric}_deviation")["values"]
            curve = Curve(
                number, validation, _average_windows(xs), _average_windows(series["values"]), _average_windows(widths)
            )
            if np.isfinite(curve.ys).any():
                yield curve


def _average_windows(values: Sequence[float]) -> np.ndarray:
    """Return the means of windows of nearly equal size; nan where a value is not finite."""
    # More points than pixels would make the page larger, but not sharper.
    windows = np.array_split(values, min(len(values), _POINTS) or 1)
    return np.array([window.mean() for window in windows if window.size])


# --- drawing ---------------------------------------------------------------------------------------------------------


def _draw_svg(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str) -> str:
    """Return a chart as an element of a page."""
    text = draw_svg((4.7, 3.0), partial(_draw_chart, runs, curves, axis, unit))
    return text[text.index("<svg") :]  # charts may share ids: the same id has the same content


def _draw_chart(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str, figure: Figure) -> None:
    """Draw curves, and dashed lines where a run grew."""
    axes = figure.subplots()
    for curve in curves:
        _draw_curve(axes, curve, hide_markers=unit == "bits" and not curve.validation)
    # Each run that grew has a row of depths above the chart.
    grown = [number for number in dict.fromkeys(curve.run for curve in curves) if runs[number].growth]
    for row, number in enumerate(grown):
        _draw_growth(axes, runs[number], style_of(number)["color"], axis, row)
    values = np.concatenate([curve.ys for curve in curves])
    # For example the norm of a gradient, or a loss that fell far.
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
