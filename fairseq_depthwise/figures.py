"""Figures: their paths and their style. matplotlib is imported only to draw."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_FORMATS = ("png", "pdf", "svg")

#: The palette of Okabe and Ito, safe for color-blind readers, without its yellow. Blue is lighter here, orange and
#: sky blue are darker, so that every color has a contrast of at least 3 on a white and on a dark page.
COLORS = ("#1A7FC4", "#D55E00", "#009E73", "#CC79A7", "#C78500", "#3C9BD6", "#000000", "#7F7F7F")

#: Markers in addition to the colors, for print in black and white.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: Dashes in addition to the colors, so that a line shows through another one that coincides with it.
_DASHES = ("solid", (0, (5, 2)), (0, (2, 1)), (0, (7, 2, 2, 2)))

#: Approximate maximum number of markers on a line.
_MARKERS_SHOWN = 12

#: Color of the largest and of the smallest values of a heat map.
_POSITIVE, _NEGATIVE = "#2D8CD6", "#E07020"

_STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],  # the first comes with matplotlib
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fairseq-depthwise",  # ids do not change from run to run
    "axes.facecolor": "none",
    "axes.grid": False,
    "grid.color": "black",
    "grid.alpha": 0.2,
    "legend.frameon": False,
}

#: What lets one SVG file serve light and dark pages. The background is part of the file, so that the figure can be read
#: even where the page is light and the reader's system dark.
_PAGE = """
 <style>
  svg { color: #1f2328 }
  .page { fill: #ffffff }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } .page { fill: #0d1117 } }
 </style>
 <rect class="page" width="100%" height="100%"/>"""


def figure_path(option: str, path: str, *, force: bool, inputs: Sequence[str] = ()) -> str:
    """Return ``path`` if a figure can be written there; call it before a long computation.

    Args:
        option: the command-line option, for the error.
        path: path of the figure.
        force: allow an existing file.
        inputs: input files, which the figure may not replace.
    """
    checked = output_file(option, path, force=force, inputs=inputs)
    if _suffix(path) not in _FORMATS:
        known = ", ".join(f".{suffix}" for suffix in _FORMATS)
        raise UserError(f"{option} {path}: the name must end in one of {known}")
    return checked


def write_figure(path: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it atomically, in the format given by the file's suffix.

    What is black is light on dark pages if the format is SVG; PNG and PDF are on white.
    """
    form = _suffix(path)
    with atomic_write(path) as file:
        if form == "svg":
            svg = draw_svg(size, draw)
            root = svg.index(">", svg.index("<svg")) + 1
            file.write(f"{svg[:root]}{_PAGE}{svg[root:]}".encode())
        else:
            _save_figure(file, form, size, draw)


def draw_svg(size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """Return a figure as SVG on a transparent background; what is black has the page's text color."""
    file = io.BytesIO()
    _save_figure(file, "svg", size, draw)
    svg = file.getvalue().decode()
    # matplotlib gives black text no color at all, so the root has one to inherit.
    return svg.replace("#000000", "currentColor").replace("<svg ", '<svg fill="currentColor" ', 1)


def _save_figure(file: IO[bytes], form: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it to an open binary file, in the format ``form``: png, pdf or svg."""
    # Without pyplot, a figure can be drawn on matplotlib's Agg canvas, which needs no display.
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained", facecolor="none" if form == "svg" else "white")
        FigureCanvasAgg(figure)
        draw(figure)
        # Without the date, the same numbers give the same file.
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form)
        figure.savefig(file, format=form, dpi=150, metadata=metadata)


def style_of(number: int) -> dict[str, Any]:
    """Return color and marker of line ``number``, from 0; lines of the same color have different markers."""
    cycle, color = divmod(number, len(COLORS))
    return {"color": COLORS[color], "marker": MARKERS[(color + cycle) % len(MARKERS)]}


def draw_line(axes: Axes, points: Sequence[tuple[float, float]], number: int) -> Line2D:
    """Draw line ``number``, from 0, of a panel, through points (x, y), and return it."""
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    # A marker at every layer would hide the line of a deep model.
    every = math.ceil(len(points) / _MARKERS_SHOWN)
    # Of lines that coincide, the one below shows between the dashes and inside the open markers.
    (line,) = axes.plot(
        xs,
        ys,
        **style_of(number),
        linestyle=_DASHES[number % len(_DASHES)],
        markersize=6,
        markerfacecolor="none",
        markevery=every,
    )
    return line


def finish_panel(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Set title, labels and grid of a panel whose x axis is the layer."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(True)


def make_colormap(lowest: float) -> Colormap:
    """Return the colors of a heat map from 0 up, or, if ``lowest`` is negative, from both sides of 0.

    The page shows through, more for smaller values, so that the map fits a light and a dark page. Missing values are
    transparent.
    """
    from matplotlib.colors import ListedColormap, to_rgb

    # Even 0 has a tint, unlike a missing value; the power makes differences between small values visible.
    opacities = [0.06 + 0.8 * (step / 255) ** 0.75 for step in range(256)]
    colors = [(*to_rgb(_POSITIVE), opacity) for opacity in opacities]
    if lowest < 0:
        colors = [(*to_rgb(_NEGATIVE), opacity) for opacity in reversed(opacities)] + colors
    return ListedColormap(colors).with_extremes(bad=(0, 0, 0, 0))


def draw_legend(figure: Any, lines: Sequence[Line2D], names: Sequence[str], columns: int = 1) -> None:
    """Draw a legend below all panels."""
    legend = figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a file's name may have a $


def make_titles(paths: Sequence[str]) -> list[str]:
    """Return a title for each path: its name, or, if names are equal, its path below the common folder.

    A checkpoint that fairseq named, such as ``checkpoint_best.pt``, is called by the name of its folder.
    """
    absolute = [os.path.abspath(path) for path in paths]
    names = []
    for path in absolute:
        folder, name = os.path.split(path)
        names.append(os.path.basename(folder) if re.fullmatch(r"checkpoint.*\.pt", name) else name.removesuffix(".pt"))
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath([os.path.dirname(path) for path in absolute])
    return [os.path.relpath(path, common) for path in absolute]


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower().removeprefix(".")
