"""Figures of units: their weights in each layer, and their attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fairseq_depthwise.figures import write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Weights below are not shown, as in the paper's Figure 5.
SHOWN_FROM = 0.05


@dataclass(frozen=True)
class WeightsPanel:
    """The weights of one model's units.

    Attributes:
        title: of the panel.
        weights: of each layer, I numbers.
        of_places: they belong to the places of a learned order.
    """

    title: str
    weights: Sequence[Sequence[float]]
    of_places: bool = False


@dataclass(frozen=True)
class AttentionRow:
    """The attention of one model's units in one layer.

    Attributes:
        title: of the row.
        words: T tokens.
        maps: U x T x T, from each token (first T) to all; U is 1 where the units share their attention.
    """

    title: str
    words: Sequence[str]
    maps: Tensor


def write_weights(path: str, panels: Sequence[WeightsPanel]) -> None:
    """Draw a heat map of units and layers for each model, side by side with one color scale (Figure 3)."""

    def draw(figure: Figure) -> None:
        values = [weight for panel in panels for layer in panel.weights for weight in layer]
        low, high = min(0.0, *values), max(values)
        depths = [len(panel.weights) for panel in panels]
        columns = figure.subplots(1, len(panels), squeeze=False, width_ratios=depths)[0]
        for axes, panel in zip(columns, panels, strict=True):
            shown = list(zip(*panel.weights, strict=True))
            image = axes.imshow(shown, vmin=low, vmax=high, cmap="Blues", aspect="auto")
            axes.set_title(panel.title, parse_math=False)
            axes.set_xlabel("layer")
            axes.set_ylabel("place" if panel.of_places else "unit")
            axes.set_xticks(range(len(panel.weights)), [str(layer + 1) for layer in range(len(panel.weights))])
            axes.set_yticks(range(len(shown)), [str(unit + 1) for unit in range(len(shown))])
            for unit, layers in enumerate(shown):
                for layer, weight in enumerate(layers):
                    color = "white" if weight - low > 0.6 * (high - low) else "black"
                    axes.text(layer, unit, f"{weight:.2f}", ha="center", va="center", color=color, fontsize=9)
        figure.colorbar(image, ax=list(columns), label="weight")

    widths = [1.2 + max(0.55 * len(panel.weights), 0.09 * len(panel.title)) for panel in panels]
    most = max(len(panel.weights[0]) for panel in panels)
    write_figure(path, (1.0 + sum(widths), 1.3 + 0.5 * most), draw)


def write_attention(path: str, rows: Sequence[AttentionRow]) -> None:
    """Draw the attention of every unit, one model below the other (Figure 5); weights below 0.05 stay white."""

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for band, row in zip(bands, rows, strict=True):
            band.suptitle(row.title, parse_math=False)
            panels = band.subplots(1, most, squeeze=False)[0]
            places = range(len(row.words))
            for unit, axes in enumerate(panels):
                if unit >= len(row.maps):
                    axes.set_axis_off()
                    continue
                weights = row.maps[unit].float()
                image = axes.imshow(
                    weights.masked_fill(weights < SHOWN_FROM, float("nan")).numpy(), vmin=0, vmax=1, cmap="Blues"
                )
                axes.set_title("all units" if len(row.maps) == 1 else f"unit {unit + 1}", fontsize=10)
                axes.set_xticks(places, row.words, rotation=90, fontsize=size, parse_math=False)
                axes.set_yticks(places, row.words if unit == 0 else [""] * len(row.words), fontsize=size,
                    parse_math=False)  # fmt: skip
            band.colorbar(image, ax=list(panels), label="attention weight")

    longest = max(len(row.words) for row in rows)
    most = max(len(row.maps) for row in rows)
    side = min(1.0 + 0.22 * longest, 9.0)
    size = max(4, min(9, 130 * side / max(longest, 1) / 4))
    labels = 0.09 * max(len(word) for row in rows for word in row.words)
    write_figure(path, (most * side + labels + 1.2, len(rows) * (side + labels + 0.8)), draw)
