"""What all figures have in common: where they may be written, their style, and how. Nothing here imports matplotlib
before it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

from fairseq_compat import UserError
from fairseq_compat.files import written_whole
from fairseq_compat.outputs import output_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Suffix -> metadata left out, so that the same figure is the same file: when it was made.
_FORMATS: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}

#: The palette of Okabe and Ito, which people tell apart whatever colours they see. Without its yellow, too light for
#: lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Markers beside the colours, for print without any.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],  # the first comes with matplotlib: the same layout everywhere
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fairseq-depthwise",  # ids are the same at every run
    "axes.grid": False,
    "grid.alpha": 0.3,
}


def figure_path(option: str, path: str, *, force: bool, inputs: Sequence[str] = ()) -> str:
    """Return ``path`` if a figure can be written there; ask before a long computation.

    Args:
        option: the command line's, for the error.
        path: of the figure.
        force: the file may exist.
        inputs: files that are read.

    Raises:
        UserError: it cannot.
    """
    checked = output_file(option, path, force=force, inputs=inputs)
    if _suffix(path) not in _FORMATS:
        known = ", ".join(f".{suffix}" for suffix in _FORMATS)
        raise UserError(f"{option} {path}: the name must end in one of {known}")
    require_matplotlib(option)
    return checked


def require_matplotlib(option: str) -> None:
    """Raise :class:`UserError` unless matplotlib is installed."""
    try:
        import matplotlib as mpl  # noqa: F401  # asks whether it is installed
    except ImportError:
        raise UserError(f"{option} needs matplotlib; pip install 'fairseq-depthwise[analysis]'") from None


def write_figure(path: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it whole, in the format that its name ends in.

    Args:
        path: of the figure; of :func:`figure_path`, or replaced where it exists.
        size: width and height in inches.
        draw: puts everything on the empty figure.
    """
    with written_whole(path) as file:
        save_figure(file, _suffix(path), size, draw)


def save_figure(file: IO[bytes], form: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> None:
    """As :func:`write_figure`, into an open binary file; ``form`` is png, pdf or svg."""
    # Without pyplot, a figure has matplotlib's Agg canvas and needs no display.
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from fairseq_depthwise.rounded_layout import RoundedLayout

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout=RoundedLayout())
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(file, format=form, dpi=150, metadata=_FORMATS[form])


def titles_of(paths: Sequence[str]) -> list[str]:
    """What to call checkpoints: their names, or their paths from the folder that they have in common."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    absolute = [os.path.abspath(path) for path in paths]
    folder = os.path.commonpath([os.path.dirname(path) for path in absolute])
    return [os.path.relpath(path, folder) for path in absolute]


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower().removeprefix(".")
