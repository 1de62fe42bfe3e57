"""Diversity and weights of a model's units, as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.units.diversity import LayerDiversity, mean_of_layers
from fairseq_depthwise.analysis.units.recorder import measure_diversity
from fairseq_depthwise.analysis.units.weights import LayerWeights, weights_of
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.tables import aligned

#: Column of the printed table -> what it shows.
_DIVERSITIES = {
    "attention positions": "attention_positions",
    "attention outputs": "attention_outputs",
    "feed-forward outputs": "feed_forward_outputs",
}


@dataclass(frozen=True)
class UnitReport:
    """What ``fairseq-depthwise units`` says of a checkpoint.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        units: I.
        subset: part of the data.
        sentences, tokens: how much of it was read.
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
        """The mean of the layers' diversities."""
        return mean_of_layers(self.diversities)

    @property
    def sequential(self) -> bool:
        """Whether the units have a learned order."""
        return self.weights[0].order is not None


def report_on(
    loaded: LoadedModel,
    subset: str,
    *,
    max_sentences: int,
    max_tokens: int,
    include_self: bool = False,
    progress: Callable[[int, int], None] = lambda done, batches: None,
) -> UnitReport:
    """Measure a loaded ``mute_transformer`` on a part of its data.

    Args:
        loaded: the model and its data.
        subset, max_sentences, max_tokens: as in :meth:`LoadedModel.batches`.
        include_self: as in :class:`~fairseq_depthwise.analysis.units.diversity.LayerDiversitySums`.
        progress: called with the number of batches done and of all.

    Raises:
        UserError: the subset is missing or empty, or a learned order needs scipy.
    """
    layers: list[MultiUnitEncoderLayer] = list(loaded.model.encoder.layers)
    weights = tuple(map(weights_of, layers))
    batches = loaded.batches(subset, max_sentences=max_sentences, max_tokens=max_tokens)
    count = len(batches)
    measured = measure_diversity(
        loaded.model.encoder, batches, include_self=include_self, progress=lambda done: progress(done, count)
    )
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


# --- JSON and CSV ----------------------------------------------------------------------------------------------------


def as_json(report: UnitReport) -> dict[str, Any]:
    """One object, with a list of layers and the mean over them; null for what there is not."""
    return {
        "checkpoint": report.checkpoint,
        "architecture": report.architecture,
        "units": report.units,
        "subset": report.subset,
        "sentences": report.sentences,
        "tokens": report.tokens,
        "include_self": report.include_self,
        "layers": [
            {"layer": number, **asdict(diversity), **asdict(weights)} for number, diversity, weights in _rows(report)
        ],
        "mean": asdict(report.mean),
    }


def as_csv(reports: Sequence[UnitReport]) -> str:
    """A line for each layer of each checkpoint, and one with the layer ``mean``; empty for what there is not."""
    most = range(1, max(report.units for report in reports) + 1)
    columns = ["checkpoint", "layer", *_DIVERSITIES.values()]
    columns += [f"weight_{unit}" for unit in most] + [f"coefficient_{unit}" for unit in most]
    columns += ["order", "distance", "penalty"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for report in reports:
        for number, diversity, weights in _rows(report):
            line = {"checkpoint": report.checkpoint, "layer": number, **asdict(diversity)}
            line |= {f"weight_{unit}": value for unit, value in enumerate(weights.weights, start=1)}
            line |= {f"coefficient_{unit}": value for unit, value in enumerate(weights.coefficients, start=1)}
            line |= {"order": _order(weights), "distance": weights.distance, "penalty": weights.penalty}
            writer.writerow(line)
        writer.writerow({"checkpoint": report.checkpoint, "layer": "mean", **asdict(report.mean)})
    return text.getvalue()


# --- text ------------------------------------------------------------------------------------------------------------


def as_text(report: UnitReport) -> str:
    """A table for people: the diversities of Table 6, the weights of Figure 3, and the order if there is one."""
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
