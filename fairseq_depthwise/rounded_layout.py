"""A layout of figures that is the same at every run. Imports matplotlib: only for those who draw."""

from __future__ import annotations

from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

#: Steps to a width or height. A power of two: a simple fraction lies on a step, never halfway between two.
_STEPS = 2**20


class RoundedLayout(ConstrainedLayoutEngine):
    """matplotlib's constrained layout, then everything in it moved to the next step, far less than a pixel away.

    kiwisolver, which solves the constraints, adds up terms in the order of the addresses at which its variables happen
    to be: its solutions differ in their last digits. SVG files have them in the names of clip paths.
    """

    def execute(self, fig: Figure) -> None:
        """Lay a figure out."""
        super().execute(fig)
        parts = fig.findobj(SubFigure)
        for part in parts:
            part.bbox_relative.set(_rounded(part.bbox_relative))
        for text in (text for whole in (fig, *parts) for text in whole.texts):  # titles
            x, y = text.get_position()
            text.set_position((_step(x), _step(y)))
        for axes in fig.axes:  # those of its parts too
            in_layout = axes.get_in_layout()
            axes.set_position(_rounded(axes.get_position(original=True)))
            axes.set_in_layout(in_layout)  # as set by hand, it would be left out from now on


def _rounded(box: Bbox) -> Bbox:
    return Bbox.from_extents(*map(_step, box.extents))


def _step(value: float) -> float:
    return round(float(value) * _STEPS) / _STEPS
