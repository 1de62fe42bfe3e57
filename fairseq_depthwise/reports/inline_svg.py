"""Draw charts as inline SVG: with unique ids, colors from the page's style sheet, and labels for screen readers."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fairseq_depthwise.figures import COLORS, MARKERS, save_figure
from fairseq_depthwise.reports.curves import Chart, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Inches; the page scales the figure to the space it has.
_SIZE = (4.7, 3.0)
#: Maximum number of markers on a curve.
_MARKED = 12
#: Placeholder colors for drawing, which the page's style sheet replaces.
_INK = "#010203"
_RUN = "#0a0b{:02x}"
#: An axis is logarithmic from this ratio between largest and smallest value on.
_LOGARITHMIC = 200

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"


def draw_svg(chart: Chart, prefix: str, label: str) -> str:
    """Return a chart as an ``<svg>`` element.

    Args:
        chart: to draw.
        prefix: of all its ids, different for each figure of a page.
        label: for screen readers.
    """
    file = io.BytesIO()
    save_figure(file, "svg", _SIZE, lambda figure: _draw(figure, chart))
    return _inline(file.getvalue(), prefix, label)


def marker_of(run: int) -> str:
    """Return a run's marker: another one when the colors are used a second time."""
    return MARKERS[(run + run // len(COLORS)) % len(MARKERS)]


def marker_svg(run: int, prefix: str) -> str:
    """Return a piece of a run's line with its marker, for a legend."""
    file = io.BytesIO()

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axis("off")
        axes.plot([0, 1, 2], [0, 0, 0], marker=marker_of(run), markevery=[1], markersize=6, color=_color(run))
        axes.set(xlim=(0, 2), ylim=(-1, 1))
        _clear(figure)

    save_figure(file, "svg", (0.4, 0.18), draw)
    return _inline(file.getvalue(), prefix, "")


def _draw(figure: Figure, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes = figure.subplots()
    for curve in chart.curves:
        _draw_curve(axes, curve)
    for run, place in chart.boundaries:
        axes.axvline(place, color=_color(run), linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.8)
    if _wants_logarithm(chart):
        axes.set_yscale("log")
    integers = not chart.x.endswith("of training")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=integers, steps=[1, 2, 5, 10]))
    if chart.x == "updates":
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if chart.y == "layers":
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel(chart.x, color=_INK)
    axes.set_ylabel(chart.y, color=_INK)
    axes.tick_params(which="both", colors=_INK, labelcolor=_INK)
    for text in (axes.xaxis.get_offset_text(), axes.yaxis.get_offset_text()):
        text.set_color(_INK)
    for name, spine in axes.spines.items():
        spine.set_color(_INK)
        spine.set_visible(name in ("left", "bottom"))
    axes.grid(axis="y", color=_INK, alpha=0.15)
    _clear(figure)


def _draw_curve(axes: Any, curve: Curve) -> None:
    color = _color(curve.run)
    if curve.lows:
        axes.fill_between(curve.xs, curve.lows, curve.highs, color=color, alpha=0.15, linewidth=0)
    every = max(1, len(curve.xs) // _MARKED)
    points = curve.style == "points"
    axes.plot(
        curve.xs,
        curve.ys,
        color=color,
        linewidth=1.4 if points else 1.1,
        # The color of a single thin line is hard to see; a single point is no line at all.
        marker=marker_of(curve.run) if points or curve.what == "" or len(curve.xs) == 1 else None,
        markevery=1 if points and len(curve.xs) <= 2 * _MARKED else (every // 2, every),
        markersize=4.5,
        drawstyle="steps-post" if curve.style == "steps" else "default",
        alpha=0.75 if curve.what == "training" else 1,
    )


def _color(run: int) -> str:
    return _RUN.format(run % len(COLORS))


def _clear(figure: Figure) -> None:
    """Make the background transparent."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)


def _wants_logarithm(chart: Chart) -> bool:
    values = [y for curve in chart.curves for y in curve.ys if math.isfinite(y)]
    return min(values) > 0 and max(values) / min(values) > _LOGARITHMIC


def _inline(svg: bytes, prefix: str, label: str) -> str:
    """Turn matplotlib's file into an element of a page."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg)
    for child in list(root):
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
    for parent in root.iter(f"{{{_SVG}}}defs"):
        for style in parent.findall(f"{{{_SVG}}}style"):
            parent.remove(style)  # would hold for the whole page, which has these rules too
    # matplotlib gives every group an id; only those that are referred to are needed, unique in the page.
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', svg.decode()))
    for element in root.iter():
        if (name := element.attrib.pop("id", None)) in used:
            element.set("id", f"{prefix}-{name}")
        if _LINK in element.attrib:
            element.set("href", f"#{prefix}-{element.attrib.pop(_LINK).removeprefix('#')}")
        if "clip-path" in element.attrib:
            element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{prefix}-"))
        if "style" in element.attrib:
            element.set("style", _themed(element.attrib["style"]))
        if "d" in element.attrib:
            element.set("d", re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", element.attrib["d"]))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    if label:
        root.set("role", "img")
        root.set("aria-label", label)
    else:
        root.set("aria-hidden", "true")
    return re.sub(r"\s*\n\s*", "", ElementTree.tostring(root, encoding="unicode"))


def _themed(style: str) -> str:
    """Leave colors and font to the page."""
    style = re.sub(r"#0a0b([0-9a-f]{2})", lambda match: f"var(--run-{int(match[1], 16)})", style)
    return re.sub(r"font-family: [^;]*; ?", "", style.replace(_INK, "currentColor"))
