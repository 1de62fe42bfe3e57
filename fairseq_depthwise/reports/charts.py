"""The charts of a report: metrics over updates or time, drawn by matplotlib as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairseq_depthwise.figures import MARKERS, draw_svg, style_of
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

#: matplotlib's marker -> a similar character.
MARKS = dict(zip(MARKERS, "●■▲◆▼✚✖", strict=True))

#: Kind of a line -> what it is.
KINDS = {
    "validation": "markers: validation, beside training",
    "band": "band: one standard deviation",
    "growth": "dashed: growth to that many layers",
}

#: Points of a curve, about one for each pixel, and markers on it.
_POINTS, _MARKED = 500, 12
#: Places of a chart at which the pointer shows values, and the most values that it shows.
_PLACES, _VALUES = 60, 10
#: Width and height of a chart, in inches and in the units of its SVG, points.
_SIZE = (4.7, 3.0)
_POINT = 72
#: Smallest ratio between largest and smallest value for which an axis is logarithmic: of losses, and of other units.
_LOGARITHMIC, _LOGARITHMIC_OTHERS = {"bits": 1.5}, 200


class Axis(NamedTuple):
    """The x axis of a chart: updates, or the time of training in a ``unit`` of that many seconds."""

    name: str
    unit: int = 0


class Curve(NamedTuple):
    """A line of a chart; nan is a gap. ``widths`` of a band around the line may be empty.

    ``part`` says which of a run's lines it is: "validation", a layer, or nothing for the only one.
    """

    run: int
    part: str
    xs: np.ndarray
    ys: np.ndarray
    widths: np.ndarray


class Chart(NamedTuple):
    """A chart as an ``<svg>`` element, and the kinds of its lines, for its legend.

    Attributes:
        section: heading of the section that it is in.
        title: its own heading.
        svg: the element.
        runs: numbers of the runs that it shows.
        kinds: the kinds of lines that it has, of ``KINDS``.
    """

    section: str
    title: str
    svg: str
    runs: Sequence[int]
    kinds: Sequence[str]


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
                shown = list(dict.fromkeys(curve.run for curve in curves))
                kinds = _find_kinds(curves, [runs[number] for number in shown])
                yield Chart(section, f"{title} over time" if axis.unit else title, svg, shown, kinds)


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
            part = "validation" if validation else _name_part(metric, metrics)
            # A depth has no values between those before and after growth.
            ys = _pick_windows(series["values"]) if metric == "depth" else _average_windows(series["values"])
            curve = Curve(number, part, _average_windows(xs), ys, _average_windows(widths))
            if np.isfinite(curve.ys).any():
                yield curve


def _name_part(metric: str, metrics: Sequence[str]) -> str:
    """Return what tells a metric from the others of a chart: the end of its name, such as "layer1"."""
    return "" if len(metrics) == 1 else metric.rpartition("_")[2]


def _find_kinds(curves: Sequence[Curve], runs: Sequence[Run]) -> list[str]:
    """Return the kinds of lines that a chart has."""
    has_kind = {
        "validation": any(curve.part == "validation" for curve in curves),
        "band": any(curve.widths.size for curve in curves),
        "growth": any(run.growth for run in runs),
    }
    return [kind for kind in KINDS if has_kind[kind]]


def _average_windows(values: Sequence[float]) -> np.ndarray:
    """Return the means of windows of nearly equal size; nan where a value is not finite."""
    return np.array([window.mean() for window in _make_windows(values)])


def _pick_windows(values: Sequence[float]) -> np.ndarray:
    """Return the last values of the same windows."""
    return np.array([window[-1] for window in _make_windows(values)])


def _make_windows(values: Sequence[float]) -> list[np.ndarray]:
    # More points than pixels would make the page larger, but not sharper.
    windows = np.array_split(values, min(len(values), _POINTS) or 1)
    return [window for window in windows if window.size]


# --- drawing ---------------------------------------------------------------------------------------------------------


def _draw_svg(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str) -> str:
    """Return a chart as an element of a page, with the values that it shows under the pointer."""
    drawn: list[Axes] = []

    def draw(figure: Figure) -> None:
        drawn.append(_draw_chart(runs, curves, axis, unit, figure))

    svg = draw_svg(_SIZE, draw)
    svg = svg[svg.index("<svg") :]  # charts may share ids: the same id has the same content
    return svg.replace("</svg>", f"{_make_readings(drawn[0], curves, axis)}</svg>")


def _draw_chart(runs: Sequence[Run], curves: Sequence[Curve], axis: Axis, unit: str, figure: Figure) -> Axes:
    """Draw curves, and dashed lines where a run grew; return the axes."""
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    axes = figure.subplots()
    for curve in curves:
        _draw_curve(axes, curve, unit)
    # Each run that grew has a row of depths above the chart.
    grown = [number for number in dict.fromkeys(curve.run for curve in curves) if runs[number].growth]
    for row, number in enumerate(grown):
        _draw_growth(axes, runs[number], style_of(number)["color"], axis, row)
    values = np.concatenate([curve.ys for curve in curves])
    lowest, highest = np.nanmin(values), np.nanmax(values)
    # A loss falls fast and then slowly; the norm of a gradient may have peaks.
    if lowest > 0 and _LOGARITHMIC.get(unit, _LOGARITHMIC_OTHERS) * lowest < highest:
        axes.set_yscale("log")
    if unit == "bits" and axes.get_yscale() == "log":
        # Losses are within a decade or two: plain numbers in place of powers of 10.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8), numticks=20))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.minorticks_off()
    if unit == "layers":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if not axis.unit:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=6))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set(xlabel=f"{axis.name} of training" if axis.unit else axis.name, ylabel=unit)
    axes.spines[["right", "top"]].set_visible(False)
    axes.grid(axis="y")
    return axes


def _draw_curve(axes: Axes, curve: Curve, unit: str) -> None:
    _, _, xs, ys, widths = curve
    style = style_of(curve.run)
    if len(widths) == len(ys):
        axes.fill_between(xs, ys - widths, ys + widths, color=style["color"], alpha=0.15, linewidth=0)
    if unit == "bits" and curve.part != "validation" and len(xs) > 1:  # markers would hide how noisy a loss is
        style |= {"marker": None, "linewidth": 0.8}
    if unit == "layers":
        style["drawstyle"] = "steps-post"
    axes.plot(xs, ys, **style, markersize=4.5, markevery=max(1, len(xs) // _MARKED))


def _draw_growth(axes: Axes, run: Run, color: str, axis: Axis, row: int) -> None:
    """Draw a dashed line at each growth, with the depth from there on in a row above the chart."""
    for growth in run.growth:
        place = growth.seconds / axis.unit if axis.unit else growth.update
        axes.axvline(place, color=color, linewidth=0.8, linestyle="--")
        above = axes.get_xaxis_transform()
        axes.text(place, 1.02 + 0.06 * row, str(growth.depth), color=color, ha="center", transform=above)


# --- values under the pointer ----------------------------------------------------------------------------------------


def _make_readings(axes: Axes, curves: Sequence[Curve], axis: Axis) -> str:
    """Return SVG that shows, at the place under the pointer, the values of the curves; the page's style hides the rest.

    The page has no scripts: each place is an invisible rectangle, with a line and a text that appear above it.
    """
    places = _choose_places(curves)
    # A place shows the points that are nearer to it than to the next.
    middles = (places[1:] + places[:-1]) / 2
    borders = [-math.inf, *middles, math.inf]
    frame = axes.get_position()
    width, height = _SIZE[0] * _POINT, _SIZE[1] * _POINT
    left, right = frame.x0 * width, frame.x1 * width
    top, bottom = (1 - frame.y1) * height, (1 - frame.y0) * height

    def to_svg(x: float) -> float:
        low, high = axes.get_xlim()
        return min(max(left + (x - low) / (high - low) * (right - left), left), right)

    readings = []
    for place, (begin, end) in zip(places, pairwise(borders), strict=True):
        values = _find_values(curves, place, begin, end)
        if not values:
            continue
        rect_left, rect_right, line = to_svg(begin), to_svg(end), to_svg(place)
        # The text is on the side of the line that has more room.
        on_left = line > (left + right) / 2
        anchor, text_x = ("end", line - 6) if on_left else ("start", line + 6)
        name = f"{place:.1f} {axis.name}" if axis.unit else f"update {place:,.0f}"
        lines = [f'<tspan x="{text_x:.1f}" dy="1em">{name}</tspan>']
        for curve, value in values[:_VALUES]:
            style = style_of(curve.run)
            mark = f'<tspan fill="{style["color"]}">{MARKS[style["marker"]]}</tspan>'
            number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
            text = escape(f"{number} {curve.part}".strip())
            lines.append(f'<tspan x="{text_x:.1f}" dy="1.2em">{mark} {text}</tspan>')
        if len(values) > _VALUES:
            lines.append(f'<tspan x="{text_x:.1f}" dy="1.2em">and {len(values) - _VALUES} more</tspan>')
        readings.append(
            f'<g class="reading"><rect x="{rect_left:.1f}" y="{top:.1f}" width="{rect_right - rect_left:.1f}" '
            f'height="{bottom - top:.1f}"/><path d="M{line:.1f} {top:.1f}V{bottom:.1f}"/>'
            f'<text y="{top:.1f}" text-anchor="{anchor}">{"".join(lines)}</text></g>'
        )
    return "".join(readings)


def _choose_places(curves: Sequence[Curve]) -> np.ndarray:
    """Return the places that have readings: all points of curves with few points, such as those of validation."""
    points = np.unique(np.concatenate([curve.xs for curve in curves]))
    steps = np.linspace(0, len(points) - 1, min(len(points), _PLACES)).round().astype(int)
    sparse = [curve.xs for curve in curves if len(curve.xs) <= _PLACES]
    return np.unique(np.concatenate([points[steps], *sparse]))


def _find_values(curves: Sequence[Curve], place: float, begin: float, end: float) -> list[tuple[Curve, float]]:
    """Return the value of each curve that is nearest to a place, if it has one between ``begin`` and ``end``."""
    values = []
    for curve in curves:
        is_near = (begin < curve.xs) & (curve.xs <= end) & np.isfinite(curve.ys)
        if is_near.any():
            nearest = np.abs(curve.xs[is_near] - place).argmin()
            values.append((curve, float(curve.ys[is_near][nearest])))
    return values
