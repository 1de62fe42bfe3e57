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
    names = dict.fromkeys(name for run in runs for split in TRAINING for name in run.series.get(split, ()))
    charts = {metric: [metric] for metric in _CHARTS}
    for name in names:
        base = match[1] if (match := _OF_LAYER.match(name)) else name
        if (base == name or base not in names) and not _IGNORED.match(base):
            charts[base] = [*charts.get(base, ()), name] if base != name else [name]
    seconds = max(run.seconds for run in runs)
    clock = ("hours", 3600) if seconds > 10800 else ("minutes", 60) if seconds > 120 else ("seconds", 1)
    for base, metrics in islice(charts.items(), _MOST_CHARTS):
        section = "Gates and cell states" if base.endswith(("_gate", "_cell_norm")) else "Auxiliary losses"
        section, title, unit = _CHARTS.get(base, (section, base.replace("_", " ").capitalize(), "mean"))
        for x, scale in (("updates", 0), clock) if base in _VALIDATED and seconds else (("updates", 0),):
            if curves := [one for number, run in enumerate(runs) for one in _curves(number, run, metrics, scale)]:
                over, x = (" over time", f"{x} of training") if scale else ("", x)
                yield section, title + over, _svg(partial(_draw, runs, curves, scale, x, unit))


def _curves(number: int, run: Run, metrics: Sequence[str], scale: int) -> Iterator[Curve]:
    """Yield the lines of a run that have a finite point, over updates or, with a scale, over time."""
    for metric in metrics:
        for validation in (False, True) if metric in _VALIDATED else (False,):
            series = run.of(metric, validation=validation)
            xs = [seconds / scale for seconds in series["seconds"]] if scale else series["updates"]
            columns = (xs, series["values"], run.of(f"{metric}_deviation")["values"])
            curve = Curve(number, validation, *map(_thinned, columns))
            if np.isfinite(curve.ys).any():
                yield curve


def _thinned(values: Sequence[float]) -> np.ndarray:
    """Return the means of windows of nearly equal size; nan where a value is not finite."""
    windows = np.array_split(values, min(len(values), _POINTS) or 1)
    return np.array([window.mean() for window in windows if window.size])


def _svg(draw: Callable[[Figure], None]) -> str:
    file = io.BytesIO()
    save_figure(file, "svg", (4.7, 3.0), draw)
    text = file.getvalue().decode()
    return text[text.index("<svg") :]  # equal ids of several charts stand for equal things


def _draw(runs: Sequence[Run], curves: Sequence[Curve], scale: int, x: str, y: str, figure: Figure) -> None:
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
