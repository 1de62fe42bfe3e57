"""Diversity and weights of a model's units, as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from tqdm import tqdm

from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.units.diversity import LayerDiversity, mean_of_layers
from fairseq_depthwise.analysis.units.recorder import measure_diversity
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.models.mute.order import penalty
from fairseq_depthwise.tables import aligned, csv_text

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
        diversities: of each layer, first to last.
        weights: of each layer.
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

    @property
    def mean(self) -> LayerDiversity:
        """Mean of the layers' diversities."""
        return mean_of_layers(self.diversities)

    @property
    def sequential(self) -> bool:
        """Whether the units have a learned order."""
        return self.weights[0].order is not None


def report_on(
    loaded: LoadedModel, subset: str, *, max_sentences: int, max_tokens: int, include_self: bool = False
) -> UnitReport:
    """Measure a ``mute_transformer`` on a part of its data, with a progress bar.

    Raises:
        UserError: the subset is missing or empty, or a learned order needs scipy.
    """
    layers: list[MultiUnitEncoderLayer] = list(loaded.model.encoder.layers)
    weights = tuple(map(weights_of, layers))
    batches = loaded.batches(subset, max_sentences=max_sentences, max_tokens=max_tokens)
    shown = tqdm(batches, unit=" batches", leave=False, disable=None)
    measured = measure_diversity(loaded.model.encoder, shown, include_self=include_self)
    return UnitReport(
        checkpoint=loaded.path,
        architecture=loaded.architecture,
        units=len(layers[0].unit_weights),
        subset=subset,
        sentences=measured.sentences,
        tokens=measured.tokens,
        include_self=include_self,
        diversities=measured.layers,
        weights=weights,
    )


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


def as_json(report: UnitReport) -> dict[str, Any]:
    """Return one object, with a list of layers and their mean; null for missing values."""
    names = ("checkpoint", "architecture", "units", "subset", "sentences", "tokens", "include_self")
    return {
        **{name: getattr(report, name) for name in names},
        "layers": [
            {"layer": number, **asdict(diversity), **asdict(weights)} for number, diversity, weights in _rows(report)
        ],
        "mean": asdict(report.mean),
    }


def as_csv(reports: Sequence[UnitReport]) -> str:
    """Return a line for each layer of each checkpoint and one for their ``mean``; empty cells for missing values."""
    units = range(1, max(report.units for report in reports) + 1)
    columns = ["checkpoint", "layer", *_DIVERSITIES.values()]
    columns += [f"weight_{unit}" for unit in units] + [f"coefficient_{unit}" for unit in units]
    columns += ["order", "distance", "penalty"]
    lines: list[dict[str, Any]] = []
    for report in reports:
        for number, diversity, weights in _rows(report):
            line = {"checkpoint": report.checkpoint, "layer": number, **asdict(diversity)}
            line |= {f"weight_{unit}": value for unit, value in enumerate(weights.weights, start=1)}
            line |= {f"coefficient_{unit}": value for unit, value in enumerate(weights.coefficients, start=1)}
            line |= {"order": _order(weights), "distance": weights.distance, "penalty": weights.penalty}
            lines.append(line)
        lines.append({"checkpoint": report.checkpoint, "layer": "mean", **asdict(report.mean)})
    return csv_text(lines, columns)


def as_text(report: UnitReport) -> str:
    """Return a table of the diversities of Table 6, the weights of Figure 3, and the order if there is one."""
    pairs = "pairs of different units"
    if report.include_self:
        pairs = "all pairs of units, with themselves too, of feed-forward outputs with the residual"
    head = (
        f"{report.checkpoint}: {report.architecture}, {report.units} units in each layer\n"
        f"{report.subset}: {report.sentences:,} sentences, {report.tokens:,} tokens; diversity over {pairs}\n"
    )
    names = ["layer", *_DIVERSITIES]
    names += ["weights of places", "weights of units", "order", "distance", "penalty"] if report.sequential else []
    names += [] if report.sequential else ["weights of units"]
    lines = [names]
    for number, diversity, weights in _rows(report):
        cells = [str(number), *_diversity_cells(diversity), _numbers(weights.weights)]
        if report.sequential:
            cells += [_numbers(weights.coefficients), _order(weights)]
            cells += [_number(weights.distance), _number(weights.penalty)]
        lines.append(cells)
    lines.append(["mean", *_diversity_cells(report.mean)])
    return head + aligned(lines)


def _rows(report: UnitReport) -> Iterator[tuple[int, LayerDiversity, LayerWeights]]:
    for number, pair in enumerate(zip(report.diversities, report.weights, strict=True), start=1):
        yield number, *pair


def _diversity_cells(diversity: LayerDiversity) -> list[str]:
    return [_number(getattr(diversity, name)) for name in _DIVERSITIES.values()]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _numbers(values: Iterable[float]) -> str:
    return " ".join(map(_number, values))


def _order(weights: LayerWeights) -> str:
    return " ".join(map(str, weights.order or ()))
