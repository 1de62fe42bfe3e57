"""Diversity, weights and attention of the units of multi-unit models."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import (
    LayerRow,
    StackBatch,
    StackReport,
    make_report,
    report_checkpoints,
)
from fairseq_depthwise.analysis.diversity import OUTPUTS, compute_attention_maps, measure_diversity
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.figures import make_colormap, write_figure
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.order import penalty
from fairseq_depthwise.tables import decimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

#: Smaller attention weights are not shown, as in the paper's Figure 5.
SHOWN_FROM = 0.05

#: Width of a letter in a figure, in inches.
_LETTER_WIDTH = 0.09


@dataclass(frozen=True)
class UnitRow(LayerRow):
    """The measurements of a layer's units ("Multi-Unit Transformers", Sections 3.1, 3.3, 5.6 and 5.8).

    Attributes:
        layer: its number, from 1.
        attention_positions: diversity of the attention weights; None if the units share one output.
        attention_outputs: diversity of the outputs of self-attention; None if the units share one output.
        feed_forward_outputs: diversity of the outputs of feed-forward nets; None if the units share one output.
        weights: alpha of Equation 10, I; with a learned order the weights of its places, Equation 15.
        coefficients: c, I: the factors of the units' outputs in the layer's sum. Without an order they are alpha.
        order: the unit at each place of the permutation nearest to M, both counted from 1; None if not learned.
        distance: Frobenius distance of M from that permutation.
        penalty: Equation 19, 0 for a permutation.
    """

    attention_positions: float | None
    attention_outputs: float | None
    feed_forward_outputs: float | None
    weights: tuple[float, ...]
    coefficients: tuple[float, ...]
    order: tuple[int, ...] | None = None
    distance: float | None = None
    penalty: float | None = None


@dataclass(frozen=True)
class SentenceAttention:
    """The attention of a layer's units in one sentence.

    Attributes:
        layer: its number, from 1.
        words: the T tokens.
        weights: from each token (first T) to all, U x T x T; U is 1 where the units share their attention.
    """

    layer: int
    words: list[str]
    weights: Tensor


@dataclass(frozen=True)
class UnitReport(StackReport):
    """The measurements of a checkpoint's units: a :class:`UnitRow` for each layer of its encoder."""

    include_self: bool
    attention: SentenceAttention | None

    @property
    def layers(self) -> Sequence[UnitRow]:
        """The layers, first to last."""
        return self.rows["encoder"]

    @property
    def units(self) -> int:
        """Number of units, I."""
        return len(self.layers[0].weights)

    @property
    def has_order(self) -> bool:
        """Whether the units have a learned order."""
        return self.layers[0].order is not None

    @property
    def mean(self) -> dict[str, float | None]:
        """Mean over layers of each diversity."""
        means: dict[str, float | None] = {}
        for name in OUTPUTS:
            values = [getattr(row, name) for row in self.layers]
            means[name] = None if None in values else fmean(values)
        return means

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object, with a list of layers and their mean; null for missing values."""
        document = super().to_json()
        encoder = document.pop("encoder")
        return {
            **encoder,
            **document,
            "units": self.units,
            "include_self": self.include_self,
            "mean": self.mean,
        }


# --- measures --------------------------------------------------------------------------------------------------------


def measure_units(
    encoder: Any, batches: Iterator[StackBatch], *, include_self: bool = False
) -> dict[str, list[UnitRow]]:
    """Run batches and return a row for each layer; in evaluation mode a hard order is used, as at inference."""
    diversities_by_layer = measure_diversity(encoder.layers, batches, include_self=include_self)
    rows = []
    for number, (layer, values) in enumerate(zip(encoder.layers, diversities_by_layer, strict=True), start=1):
        diversities: dict[str, Any] = dict(zip(OUTPUTS, values, strict=True))
        rows.append(UnitRow(number, **diversities, **_read_weights(layer)))
    return {"encoder": rows}


@torch.no_grad()
def _read_weights(layer: MultiUnitEncoderLayer) -> dict[str, Any]:
    """Return the fields of :class:`UnitRow` that are read from a layer's parameters."""
    weights = tuple(layer.unit_weights.tolist())
    if layer.order is None:
        return {"weights": weights, "coefficients": weights}
    return {
        "weights": weights,
        "coefficients": tuple(layer.coefficients().tolist()),
        "order": tuple(unit + 1 for unit in layer.order.order()),
        "distance": layer.order.distance(),
        "penalty": float(penalty(layer.order.matrix())),
    }


# --- table -----------------------------------------------------------------------------------------------------------


def format_report(report: UnitReport) -> str:
    """Return a table of diversities (Table 6), weights (Figure 3), and the order if there is one."""
    pairs = "pairs of different units"
    if report.include_self:
        pairs = "all pairs of units, with themselves too, of feed-forward outputs with the residual"

    def format_rows(rows: Sequence[UnitRow]) -> list[list[str]]:
        header = _make_header(has_order=report.has_order)
        mean = [decimal(value, ".3f") for value in report.mean.values()]
        return [header, *map(_format_row, rows), ["mean", *mean]]

    return report.format_tables(f"{report.units} units in each layer; diversity over {pairs}\n", format_rows)


def _make_header(*, has_order: bool) -> list[str]:
    header = ["layer", "attention positions", "attention outputs", "feed-forward outputs"]
    if has_order:
        return [*header, "weights of places", "weights of units", "order", "distance", "penalty"]
    return [*header, "weights of units"]


def _format_row(row: UnitRow) -> list[str]:
    cells = [str(row.layer)]
    cells += [decimal(getattr(row, name), ".3f") for name in OUTPUTS]
    cells.append(_format_numbers(row.weights))
    if row.order is not None:
        cells.append(_format_numbers(row.coefficients))
        cells.append(" ".join(map(str, row.order)))
        cells += [decimal(row.distance, ".3f"), decimal(row.penalty, ".3f")]
    return cells


def _format_numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


# --- figures ---------------------------------------------------------------------------------------------------------


def write_weights(path: str, titles: Sequence[str], reports: Sequence[UnitReport]) -> None:
    """Draw a heat map of units and layers for each model, side by side with one color scale (Figure 3)."""
    depths = [len(report.layers) for report in reports]
    weights: list[float] = []
    for report in reports:
        for row in report.layers:
            weights += row.weights
    # One scale for all models, so that their colors can be compared.
    low, high = min(weights), max(map(abs, weights))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(reports), squeeze=False, width_ratios=depths)[0]
        for axes, title, report in zip(panels, titles, reports, strict=True):
            axes.set_title(title, parse_math=False)
            image = _draw_weights(axes, report, low, high)
        figure.colorbar(image, ax=list(panels), label="weight")  # all panels have the same scale

    # Inches: a panel is as wide as its layers or its title.
    width = 1.0
    for depth, title in zip(depths, titles, strict=True):
        width += 1.2 + max(0.55 * depth, _LETTER_WIDTH * len(title))
    height = 1.3 + 0.5 * max(report.units for report in reports)
    write_figure(path, (width, height), draw)


def _draw_weights(axes: Axes, report: UnitReport, low: float, high: float) -> Any:
    """Draw the weights of a model, units x layers, with colors from ``low`` to ``high``, and return the image."""
    weights = np.array([row.weights for row in report.layers]).T  # I x L
    units, layers = weights.shape
    colors = make_colormap(low)
    lowest = -high if low < 0 else 0
    image = axes.imshow(weights, vmin=lowest, vmax=high, cmap=colors, aspect="auto", interpolation="none")
    axes.set(xlabel="layer", ylabel="place" if report.has_order else "unit")
    axes.set_xticks(range(layers), [str(layer + 1) for layer in range(layers)])
    axes.set_yticks(range(units), [str(unit + 1) for unit in range(units)])
    for (unit, layer), weight in np.ndenumerate(weights):
        axes.text(layer, unit, f"{weight:.2f}", ha="center", va="center", fontsize=9)
    return image


def write_attention(path: str, titles: Sequence[str], reports: Sequence[UnitReport]) -> None:
    """Draw the attention of every unit, one model below the other (Figure 5); weights below 0.05 are left out."""
    attentions = [report.attention for report in reports if report.attention is not None]
    words: list[str] = []
    for attention in attentions:
        words += attention.words
    # One scale for all models, up to the largest weight that is drawn.
    highest = max(float(attention.weights.max()) for attention in attentions)
    longest_sentence = max(len(attention.words) for attention in attentions)
    most_maps = max(len(attention.weights) for attention in attentions)
    # A panel grows with the sentence up to 9 inches; in longer sentences letters are smaller.
    side = min(0.4 + 0.17 * longest_sentence, 9.0)
    font_size = max(4, min(9, 50 * side / longest_sentence))

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(attentions), 1, squeeze=False)[:, 0]
        for band, title, attention in zip(bands, titles, attentions, strict=True):
            band.suptitle(f"{title}, layer {attention.layer}", parse_math=False)
            panels = band.subplots(1, most_maps, squeeze=False)[0]
            _draw_attention(band, panels, attention, font_size, highest)

    label_size = _LETTER_WIDTH * max(map(len, words))
    width = most_maps * side + label_size + 1.2
    height = len(attentions) * (side + label_size + 0.8)
    write_figure(path, (width, height), draw)


def _draw_attention(
    band: SubFigure, panels: Sequence[Axes], attention: SentenceAttention, font_size: float, highest: float
) -> None:
    """Draw a panel for each unit, with colors up to the weight ``highest``, and leave the other panels empty."""
    words, maps = attention.words, attention.weights.float()
    style: dict[str, Any] = {"fontsize": font_size, "parse_math": False}
    for axes in panels[len(maps) :]:
        axes.set_axis_off()
    for unit, (axes, weights) in enumerate(zip(panels, maps, strict=False)):
        visible = weights.masked_fill(weights < SHOWN_FROM, float("nan")).numpy()
        image = axes.imshow(visible, vmin=0, vmax=highest, cmap=make_colormap(0), interpolation="none")
        axes.set_title("all units" if len(maps) == 1 else f"unit {unit + 1}", fontsize=10)
        axes.set_xticks(range(len(words)), words, rotation=90, **style)
        # Only the first panel has the words at its side, too.
        axes.set_yticks(range(len(words)), words if unit == 0 else [""] * len(words), **style)
    panels[0].set_ylabel("this word attends")
    band.supxlabel("to this word", fontsize="medium")
    band.colorbar(image, ax=list(panels), label="attention weight")


# --- the command -----------------------------------------------------------------------------------------------------


def report_units(options: argparse.Namespace) -> None:
    """Measure, print and draw what ``fairseq-depthwise units`` was asked for."""
    drawings = {"output": write_weights, "attention_output": write_attention}
    report_checkpoints(options, _measure_model, format_report, drawings, family="mute_transformer")


def _measure_model(loaded: LoadedModel, options: argparse.Namespace) -> UnitReport:
    attention = _compute_attention(loaded, options) if options.attention_output else None
    measure = partial(measure_units, loaded.model.encoder, include_self=options.include_self)
    report = make_report(loaded, options, measure)
    return UnitReport(**vars(report), include_self=options.include_self, attention=attention)


def _compute_attention(loaded: LoadedModel, options: argparse.Namespace) -> SentenceAttention:
    """Return the attention in the sentence that the options select."""
    dictionary = loaded.task.source_dictionary
    if options.sentence is not None:
        # A word that is not in the dictionary becomes the unknown word, as in translation.
        tokens = dictionary.encode_line(options.sentence, add_if_not_exist=False).long()
    else:
        tokens = loaded.dataset(options.subset)[options.sentence_index]["source"]
        tokens = tokens[tokens != dictionary.pad()]
    depth = len(loaded.model.encoder.layers)
    layer = depth if options.layer is None else options.layer
    if not 1 <= layer <= depth:
        raise UserError(f"--layer {layer} is out of range; the encoder of {loaded.path} has {depth} layers")
    words = [dictionary[token] for token in tokens.tolist()]
    weights = compute_attention_maps(loaded.model.encoder, tokens[None], layer - 1)  # U x T x T
    return SentenceAttention(layer, words, weights)
