"""Diversity, weights and attention of the units of multi-unit models.

example:
  fairseq-depthwise units checkpoints/checkpoint_best.pt --data data-bin --output weights.png
  fairseq-depthwise units mute.pt biased.pt --data data-bin --sentence-index 3 --attention-output maps.pdf
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import (
    StackBatch,
    StackReport,
    add_checkpoint_options,
    report_checkpoints,
    report_on,
)
from fairseq_depthwise.analysis.diversity import OUTPUTS, attention_maps, measure_diversity
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.figures import write_figure
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.order import penalty
from fairseq_depthwise.options import between

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Attention weights below are not shown, as in the paper's Figure 5.
SHOWN_FROM = 0.05


@dataclass(frozen=True)
class UnitRow:
    """A layer's units ("Multi-Unit Transformers", Sections 3.1, 3.3, 5.6 and 5.8).

    Attributes:
        layer: its number, from 1.
        attention_positions, attention_outputs, feed_forward_outputs: diversities; None where units share one output.
        weights: alpha of Equation 10, I; with a learned order those of its places, Equation 15.
        coefficients: c, I: the factors of the units' outputs in the layer's sum. Without an order they are alpha.
        order: the unit at each place of the permutation nearest to M, both counted from 1; None without an order.
        distance: Frobenius distance of M from that permutation.
        penalty: Equation 19, 0 for a permutation.
    """

    layer: int
    attention_positions: float | None
    attention_outputs: float | None
    feed_forward_outputs: float | None
    weights: tuple[float, ...]
    coefficients: tuple[float, ...]
    order: tuple[int, ...] | None = None
    distance: float | None = None
    penalty: float | None = None


@dataclass(frozen=True)
class UnitReport(StackReport):
    """What was measured of a checkpoint's units: an encoder of rows of :class:`UnitRow`.

    ``attention`` is of a sentence: the number of the layer, the T tokens, and the weights of each unit, U x T x T, from
    each token (first T) to all; U is 1 where the units share their attention.
    """

    include_self: bool
    attention: tuple[int, list[str], Tensor] | None

    @property
    def layers(self) -> Sequence[UnitRow]:
        """The layers, first to last."""
        return self.rows["encoder"]

    @property
    def units(self) -> int:
        """Number of units, I."""
        return len(self.layers[0].weights)

    @property
    def mean(self) -> dict[str, float | None]:
        """Mean of the layers' diversities."""
        columns = {name: [getattr(row, name) for row in self.layers] for name in OUTPUTS}
        return {name: None if None in values else fmean(values) for name, values in columns.items()}

    def document(self) -> dict[str, Any]:
        """Return one object of JSON, with a list of layers and their mean; null for missing values."""
        found = super().document()
        own = {"units": self.units, "include_self": self.include_self, "mean": self.mean}
        return {**found.pop("encoder"), **found, **own}


def measure_units(
    encoder: Any, batches: Iterator[StackBatch], *, include_self: bool = False
) -> dict[str, list[UnitRow]]:
    """Run batches and return a row for each layer; in evaluation mode a hard order is used as in inference."""
    weights = list(map(_weights_of, encoder.layers))
    diversities: list[Any] = measure_diversity(encoder.layers, batches, include_self=include_self)
    pairs = zip(diversities, weights, strict=True)
    return {"encoder": [UnitRow(number, *found, *values) for number, (found, values) in enumerate(pairs, start=1)]}


@torch.no_grad()
def _weights_of(layer: MultiUnitEncoderLayer) -> tuple[Any, ...]:
    weights = tuple(layer.unit_weights.tolist())
    if layer.order is None:
        return weights, weights
    order = tuple(unit + 1 for unit in layer.order.order())
    coefficients = tuple(layer.coefficients().tolist())
    return weights, coefficients, order, layer.order.distance(), float(penalty(layer.order.matrix()))


def as_text(report: UnitReport) -> str:
    """Return a table of the diversities of Table 6, the weights of Figure 3, and the order if there is one."""
    sequential = report.layers[0].order is not None
    pairs = "pairs of different units"
    if report.include_self:
        pairs = "all pairs of units, with themselves too, of feed-forward outputs with the residual"

    def of_side(rows: Sequence[UnitRow]) -> list[list[str]]:
        names = ["attention positions", "attention outputs", "feed-forward outputs"]
        lines = [["layer", *names, *(["weights of places"] if sequential else []), "weights of units"]]
        lines[0] += ["order", "distance", "penalty"] if sequential else []
        for row in rows:
            cells = [str(row.layer), *_numbers(getattr(row, name) for name in OUTPUTS), " ".join(_numbers(row.weights))]
            if sequential:
                cells += [" ".join(_numbers(row.coefficients)), " ".join(map(str, row.order or ()))]
                cells += _numbers([row.distance, row.penalty])
            lines.append(cells)
        return [*lines, ["mean", *_numbers(report.mean.values())]]

    return report.table(f"{report.units} units in each layer; diversity over {pairs}\n", of_side)


def _numbers(values: Iterable[float | None]) -> list[str]:
    return ["-" if value is None else f"{value:.3f}" for value in values]


def write_weights(path: str, titles: Sequence[str], reports: Sequence[UnitReport]) -> None:
    """Draw a heat map of units and layers for each model, side by side with one color scale (Figure 3)."""
    weights = [[row.weights for row in report.layers] for report in reports]

    def draw(figure: Figure) -> None:
        values = [weight for layers in weights for layer in layers for weight in layer]
        low, high = min(0.0, *values), max(values)
        panels = figure.subplots(1, len(reports), squeeze=False, width_ratios=list(map(len, weights)))[0]
        for axes, title, report, layers in zip(panels, titles, reports, weights, strict=True):
            shown = list(zip(*layers, strict=True))
            image = axes.imshow(shown, vmin=low, vmax=high, cmap="Blues", aspect="auto")
            axes.set_title(title, parse_math=False)
            axes.set(xlabel="layer", ylabel="unit" if report.layers[0].order is None else "place")
            axes.set_xticks(range(len(layers)), [str(layer + 1) for layer in range(len(layers))])
            axes.set_yticks(range(len(shown)), [str(unit + 1) for unit in range(len(shown))])
            for unit, of_layers in enumerate(shown):
                for layer, weight in enumerate(of_layers):
                    color = "white" if weight - low > 0.6 * (high - low) else "black"
                    axes.text(layer, unit, f"{weight:.2f}", ha="center", va="center", color=color, fontsize=9)
        figure.colorbar(image, ax=list(panels), label="weight")

    widths = [1.2 + max(0.55 * len(layers), 0.09 * len(title)) for layers, title in zip(weights, titles, strict=True)]
    write_figure(path, (1.0 + sum(widths), 1.3 + 0.5 * max(report.units for report in reports)), draw)


def write_attention(path: str, titles: Sequence[str], reports: Sequence[UnitReport]) -> None:
    """Draw the attention of every unit, one model below the other (Figure 5); weights below 0.05 stay white."""
    rows = [report.attention for report in reports if report.attention is not None]
    longest, most = max(len(words) for _, words, _ in rows), max(len(maps) for *_, maps in rows)
    side = min(1.0 + 0.22 * longest, 9.0)
    size = max(4, min(9, 130 * side / longest / 4))

    def draw(figure: Figure) -> None:
        bands = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for band, title, (layer, words, maps) in zip(bands, titles, rows, strict=True):
            band.suptitle(f"{title}, layer {layer}", parse_math=False)
            panels = band.subplots(1, most, squeeze=False)[0]
            for axes in panels[len(maps) :]:
                axes.set_axis_off()
            for unit, (axes, weights) in enumerate(zip(panels, maps.float(), strict=False)):
                shown = weights.masked_fill(weights < SHOWN_FROM, float("nan")).numpy()
                image = axes.imshow(shown, vmin=0, vmax=1, cmap="Blues")
                axes.set_title("all units" if len(maps) == 1 else f"unit {unit + 1}", fontsize=10)
                style = {"fontsize": size, "parse_math": False}
                axes.set_xticks(range(len(words)), words, rotation=90, **style)
                axes.set_yticks(range(len(words)), words if unit == 0 else [""] * len(words), **style)
            band.colorbar(image, ax=list(panels), label="attention weight")

    labels = 0.09 * max(len(word) for _, words, _ in rows for word in words)
    write_figure(path, (most * side + labels + 1.2, len(rows) * (side + labels + 0.8)), draw)


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser, models="mute_transformer models", drawn="the weights of the units")
    parser.add_argument(
        "--include-self", action="store_true",
        help="compute diversity as the authors' program does: over all pairs of units, including those of a unit with "
        "itself, and of feed-forward outputs with their residual",
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sentence", metavar="TEXT", help="a tokenized sentence for --attention-output")
    which.add_argument(
        "--sentence-index", type=between(0, 2**62, int), default=0, metavar="N",
        help="or one of the subset, counted from 0 as fairseq-generate does (default: 0)",
    )  # fmt: skip
    parser.add_argument("--attention-output", metavar="FIGURE", help="draw the attention of the units in the sentence")
    parser.add_argument("--layer", type=int, metavar="N", help="the layer of that figure (default: the last)")


def _measure(loaded: LoadedModel, options: argparse.Namespace) -> UnitReport:
    measure = partial(measure_units, loaded.model.encoder, include_self=options.include_self)
    attention = _attention(options, loaded) if options.attention_output else None
    found = report_on(loaded, options, measure)
    return UnitReport(**vars(found), include_self=options.include_self, attention=attention)


def _attention(options: argparse.Namespace, loaded: LoadedModel) -> tuple[int, list[str], Tensor]:
    dictionary = loaded.task.source_dictionary
    if options.sentence is not None:
        tokens = dictionary.encode_line(options.sentence, add_if_not_exist=False).long()
    else:
        tokens = loaded.sentences(options.subset)[options.sentence_index]["source"]
        tokens = tokens[tokens != dictionary.pad()]
    layers = len(loaded.model.encoder.layers)
    layer = layers if options.layer is None else options.layer
    if not 1 <= layer <= layers:
        raise UserError(f"--layer {layer} is out of range; the encoder of {loaded.path} has {layers} layers")
    words = [dictionary[token] for token in tokens.tolist()]
    return layer, words, attention_maps(loaded.model.encoder, tokens[None], layer - 1)


def run(options: argparse.Namespace) -> None:
    report_checkpoints(
        options, _measure, as_text, {"output": write_weights, "attention_output": write_attention}, "mute_transformer"
    )
