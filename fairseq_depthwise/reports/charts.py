"""The charts of a report: which metrics over which axis, drawn by matplotlib as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairseq_depthwise.figures import save_figure, style_of
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
#: Metrics that validation has, too.
_VALIDATED = ("loss", "nll_loss", "bleu")
_IGNORED = re.compile(
    r"(best|cuda|lr)_|.*_deviation$"
    r"|(ppl|peak_lr|stage|clip|ups|wpb|bsz|train_wall|wall|gb_free|accuracy|n_correct|total)$"
)
#: ``permutation_penalty_2``, and ``encoder_forget_gate_layer2b`` of the second cell in a layer.
_OF_LAYER = re.compile(r"(\w+?)_(?:layer)?\d{1,9}[ab]?$")

#: Points of a curve, about one for each pixel, and markers on it.
_POINTS, _MARKED = 500, 12
#: More metrics than any training has, each of which would take a tenth of a second.
_MOST_CHARTS = 300
#: An axis is logarithmic from this ratio between largest and smallest value on.
_LOGARITHMIC = 200


class Curve(NamedTuple):
    """A line of a chart; nan is a gap, and widths, if there are any, are those of a band around the line."""

    run: int
    validation: bool
    xs: np.ndarray
    ys: np.ndarray
    widths: np.ndarray


def charts_of(runs: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield section, title and ``<svg>`` of all metrics that the runs have; those of single layers share a chart."""
    seconds = max(run.seconds for run in runs)
    axes = [("updates", 0)]
    axes_of_validated = [*axes, _clock(seconds)] if seconds else axes
    for name, metrics in islice(_metrics_by_chart(runs).items(), _MOST_CHARTS):
        section = "Gates and cell states" if name.endswith(("_gate", "_cell_norm")) else "Auxiliary losses"
        section, title, unit = _CHARTS.get(name, (section, name.replace("_", " ").capitalize(), "mean"))
        for axis, scale in axes_of_validated if name in _VALIDATED else axes:
            curves: list[Curve] = []
            for number, run in enumerate(runs):
                curves += _curves(number, run, metrics, scale)
            if not curves:
                continue
            over_time = scale > 0
            label = f"{axis} of training" if over_time else axis
            svg = _svg(partial(_draw, runs, curves, scale, label, unit))
            yield section, f"{title} over time" if over_time else title, svg


def _clock(seconds: float) -> tuple[str, int]:
    """Return the unit of time that fits a training, and its seconds."""
    if seconds > 10800:
        return "hours", 3600
    if seconds > 120:
        return "minutes", 60
    return "seconds", 1


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


def _curves(number: int, run: Run, metrics: Sequence[str], scale: int) -> Iterator[Curve]:
    """Yield the lines of a run that have a finite point, over updates or, with a scale, over time."""
    for metric in metrics:
        for validation in (False, True) if metric in _VALIDATED else (False,):
            series = run.of(metric, validation=validation)
            xs = series["updates"]
            if scale:
                xs = [seconds / scale for seconds in series["seconds"]]
            widths = run.of(f"{metric}_deviation")["values"]
            curve = Curve(number, validation, _thinned(xs), _thinned(series["values"]), _thinned(widths))
            if np.isfinite(curve.ys).any():
                yield curve


def _thinned(values: Sequence[float]) -> np.ndarray:
    """Return the means of windows of nearly equal size; nan where a value is not finite."""
    windows = np.array_split(values, min(len(values), _POINTS) or 1)
    return np.array([window.mean() for window in windows if window.size])


def _svg(draw: Callable[[Figure], None]) -> str:
    """Return a figure as an element of a page."""
    file = io.BytesIO()
    save_figure(file, "svg", (4.7, 3.0), draw)
    text = file.getvalue().decode()
    return text[text.index("<svg") :]  # equal ids of several charts stand for equal things


def _draw(runs: Sequence[Run], curves: Sequence[Curve], scale: int, x: str, y: str, figure: Figure) -> None:
    """Draw curves, and dashed lines where a run grew; a scale is the seconds of the axis's unit."""
    axes = figure.subplots()
    for run, validation, xs, ys, widths in curves:
        style = style_of(run)
        if len(widths) == len(ys):
            axes.fill_between(xs, ys - widths, ys + widths, color=style["color"], alpha=0.15, linewidth=0)
        if y == "bits" and not validation and len(xs) > 1:  # markers would hide how noisy a loss is
            style |= {"marker": None, "linewidth": 0.8}
        axes.plot(xs, ys, **style, markersize=4.5, markevery=max(1, len(xs) // _MARKED))
    growing = [run for run in dict.fromkeys(curve.run for curve in curves) if runs[run].growth]
    for row, run in enumerate(growing):
        for update, seconds, depth in runs[run].growth:
            place, color = seconds / scale if scale else update, style_of(run)["color"]
            axes.axvline(place, color=color, linewidth=0.8, linestyle="--")
            above = axes.get_xaxis_transform()
            axes.text(place, 1.02 + 0.06 * row, str(depth), color=color, ha="center", transform=above)
    values = np.concatenate([curve.ys for curve in curves])
    if 0 < _LOGARITHMIC * np.nanmin(values) < np.nanmax(values):
        axes.set_yscale("log")
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["right", "top"]].set_visible(False)
    axes.grid(axis="y")
