"""Figures: their paths and their style. matplotlib is imported only to draw."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_FORMATS = ("png", "pdf", "svg")

#: The palette of Okabe and Ito, safe for color-blind readers, without its yellow: too light for lines on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")

#: Markers in addition to the colors, for print in black and white.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

#: Approximate maximum number of markers on a line.
_MARKERS_SHOWN = 12

_STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],  # the first comes with matplotlib
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fairseq-depthwise",  # ids do not change from run to run
    "axes.grid": False,
    "grid.alpha": 0.3,
}


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
    """Draw a figure and write it atomically, in the format given by the file's suffix."""
    with atomic_write(path) as file:
        save_figure(file, _suffix(path), size, draw)


def save_figure(file: IO[bytes], form: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it to an open binary file, in the format ``form``: png, pdf or svg."""
    # Without pyplot, a figure can be drawn on matplotlib's Agg canvas, which needs no display.
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
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
    (line,) = axes.plot(xs, ys, **style_of(number), markersize=4.5, markevery=every)
    return line


def finish_panel(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Set title, labels and grid of a panel whose x axis is the layer."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(True)


def draw_legend(figure: Any, lines: Sequence[Line2D], names: Sequence[str], columns: int = 1) -> None:
    """Draw a legend below all panels."""
    legend = figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a file's name may have a $


def make_titles(paths: Sequence[str]) -> list[str]:
    """Return a title for each path: its file name, or, if names are equal, its path below the common folder."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    absolute = [os.path.abspath(path) for path in paths]
    folder = os.path.commonpath([os.path.dirname(path) for path in absolute])
    return [os.path.relpath(path, folder) for path in absolute]


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower().removeprefix(".")
