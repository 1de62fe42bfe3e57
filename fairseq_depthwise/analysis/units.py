"""Diversity, weights and attention of the units of multi-unit models."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import Analysis, add_checkpoint_options, report_checkpoints
from fairseq_depthwise.analysis.diversity import LayerDiversity, attention_maps, mean_of_layers, measure_diversity
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.figures import write_figure
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.order import penalty
from fairseq_depthwise.tables import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Attention weights below are not shown, as in the paper's Figure 5.
SHOWN_FROM = 0.05

#: Column of the printed table -> field of a diversity.
_DIVERSITIES = {
    "attention positions": "attention_positions",
    "attention outputs": "attention_outputs",
    "feed-forward outputs": "feed_forward_outputs",
}


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer's units ("Multi-Unit Transformers", Sections 3.1, 3.3 and 5.8).

    Attributes:
        weights: alpha of Equation 10, I; with a learned order those of its places, Equation 15.
        coefficients: c, I: the factors of the units' outputs in the layer's sum. Without an order they are alpha.
        order: the unit at each place of the permutation nearest to M, both counted from 1; None without an order.
        distance: Frobenius distance of M from that permutation.
        penalty: Equation 19, 0 for a permutation.
    """

    weights: tuple[float, ...]
    coefficients: tuple[float, ...]
    order: tuple[int, ...] | None = None
    distance: float | None = None
    penalty: float | None = None


@dataclass(frozen=True)
class UnitReport:
    """The diversity and the weights of a checkpoint's units.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        units: I.
        subset: part of the data.
        sentences, tokens: number of sentences and tokens read.
        include_self: whether diversity is computed as by the authors' program.
        diversities, weights: of each layer, first to last.
        attention: of a sentence: the number of the layer, the T tokens, and the weights of each unit, U x T x T, from
            each token (first T) to all; U is 1 where the units share their attention.
    """

    checkpoint: str
    architecture: str
    units: int
    subset: str
    sentences: int
    tokens: int
    include_self: bool
    diversities: tuple[LayerDiversity, ...]
    weights: tuple[LayerWeights, ...]
    attention: tuple[int, list[str], Tensor] | None = None

    @property
    def mean(self) -> LayerDiversity:
        """Mean of the layers' diversities."""
        return mean_of_layers(self.diversities)

    @property
    def sequential(self) -> bool:
        """Whether the units have a learned order."""
        return self.weights[0].order is not None

    def rows(self) -> Iterator[tuple[int, LayerDiversity, LayerWeights]]:
        """Yield the number of each layer, its diversity and its weights."""
        for number, pair in enumerate(zip(self.diversities, self.weights, strict=True), start=1):
            yield number, *pair

    def document(self) -> dict[str, Any]:
        """Return one object of JSON, with a list of layers and their mean; null for missing values."""
        names = ("checkpoint", "architecture", "units", "subset", "sentences", "tokens", "include_self")
        layers = [{"layer": number, **asdict(found), **asdict(weights)} for number, found, weights in self.rows()]
        return {**{name: getattr(self, name) for name in names}, "layers": layers, "mean": asdict(self.mean)}


def weights_of(layer: MultiUnitEncoderLayer) -> LayerWeights:
    """Return the weights of a layer in evaluation mode, in which a hard order is used as in inference.

    Raises:
        UserError: the units have a learned order and scipy is not installed.
    """
    with torch.no_grad():
        weights = tuple(layer.unit_weights.tolist())
        if layer.order is None:
            return LayerWeights(weights, weights)
        order = tuple(unit + 1 for unit in layer.order.order())
        coefficients = tuple(layer.coefficients().tolist())
        return LayerWeights(weights, coefficients, order, layer.order.distance(), float(penalty(layer.order.matrix())))


def as_text(report: UnitReport) -> str:
    """Return a table of the diversities of Table 6, the weights of Figure 3, and the order if there is one."""
    pairs = "pairs of different units"
    if report.include_self:
        pairs = "all pairs of units, with themselves too, of feed-forward outputs with the residual"
    head = (
        f"{report.checkpoint}: {report.architecture}, {report.units} units in each layer\n"
        f"{report.subset}: {report.sentences:,} sentences, {report.tokens:,} tokens; diversity over {pairs}\n"
    )
    lines = [["layer", *_DIVERSITIES, *(["weights of places"] if report.sequential else []), "weights of units"]]
    lines[0] += ["order", "distance", "penalty"] if report.sequential else []
    for number, diversity, weights in report.rows():
        cells = [str(number), *_diversity_cells(diversity), _numbers(weights.weights)]
        if report.sequential:
            cells += [_numbers(weights.coefficients), " ".join(map(str, weights.order or ()))]
            cells += [_number(weights.distance), _number(weights.penalty)]
        lines.append(cells)
    lines.append(["mean", *_diversity_cells(report.mean)])
    return head + aligned(lines)


def _diversity_cells(diversity: LayerDiversity) -> list[str]:
    return [_number(getattr(diversity, name)) for name in _DIVERSITIES.values()]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _numbers(values: Iterable[float]) -> str:
    return " ".join(map(_number, values))


# --- figures ---------------------------------------------------------------------------------------------------------


def write_weights(path: str, titles: Sequence[str], reports: Sequence[UnitReport]) -> None:
    """Draw a heat map of units and layers for each model, side by side with one color scale (Figure 3)."""
    weights = [[layer.weights for layer in report.weights] for report in reports]

    def draw(figure: Figure) -> None:
        values = [weight for layers in weights for layer in layers for weight in layer]
        low, high = min(0.0, *values), max(values)
        panels = figure.subplots(1, len(reports), squeeze=False, width_ratios=list(map(len, weights)))[0]
        for axes, title, report, layers in zip(panels, titles, reports, weights, strict=True):
            shown = list(zip(*layers, strict=True))
            image = axes.imshow(shown, vmin=low, vmax=high, cmap="Blues", aspect="auto")
            axes.set_title(title, parse_math=False)
            axes.set_xlabel("layer")
            axes.set_ylabel("place" if report.sequential else "unit")
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


# --- the command -----------------------------------------------------------------------------------------------------


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser, models="mute_transformer models", drawn="the weights of the units")
    parser.add_argument(
        "--include-self", action="store_true",
        help="compute diversity as the authors' program does: over all pairs of units, including those of a unit with "
        "itself, and of feed-forward outputs with their residual",
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sentence", metavar="TEXT", help="a tokenized sentence for --attention-output")
    which.add_argument(
        "--sentence-index", type=int, metavar="N", help="or one of the subset, counted from 0 as fairseq-generate does"
    )
    parser.add_argument("--attention-output", metavar="FIGURE", help="draw the attention of the units in the sentence")
    parser.add_argument("--layer", type=int, metavar="N", help="the layer of that figure (default: the last)")


def _run(options: argparse.Namespace) -> None:
    if options.attention_output and options.sentence is None and options.sentence_index is None:
        raise UserError(
            f"--attention-output {options.attention_output} needs a sentence; give --sentence or --sentence-index"
        )
    drawings = {"output": write_weights, "attention_output": write_attention}
    report_checkpoints(options, partial(_measure, options), as_text, drawings)


def _measure(options: argparse.Namespace, path: str) -> UnitReport:
    """Measure a ``mute_transformer`` on a part of the data, with a progress bar."""
    loaded = load_model(path, options.data, family="mute_transformer")
    encoder = loaded.model.encoder
    weights = tuple(map(weights_of, encoder.layers))
    batches = loaded.batches(options.subset, max_sentences=options.max_sentences, max_tokens=options.max_tokens)
    shown = tqdm(batches, unit=" batches", leave=False, disable=None)
    measured = measure_diversity(encoder, shown, include_self=options.include_self)
    return UnitReport(
        checkpoint=path,
        architecture=loaded.architecture,
        units=len(weights[0].weights),
        subset=options.subset,
        sentences=measured.sentences,
        tokens=measured.tokens,
        include_self=options.include_self,
        diversities=measured.layers,
        weights=weights,
        attention=_attention(options, loaded) if options.attention_output else None,
    )


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
    return (
        layer,
        [dictionary[token] for token in tokens.tolist()],
        attention_maps(loaded.model.encoder, tokens[None], layer - 1),
    )


ANALYSIS = Analysis(
    help="measure the diversity of the units of mute_transformer models, and show their weights and attention",
    example="fairseq-depthwise units checkpoints/checkpoint_best.pt --data data-bin --output weights.png\n"
    "  fairseq-depthwise units mute.pt biased.pt --data data-bin --sentence-index 3 --attention-output maps.pdf",
    add_options=_add_options,
    run=_run,
)
