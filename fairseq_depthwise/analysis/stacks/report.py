"""What was measured of the layers of a checkpoint's stacks, as JSON, CSV and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.stacks.batches import StackBatch, stack_batches
from fairseq_depthwise.analysis.stacks.connection_weights import SourceWeight
from fairseq_depthwise.analysis.stacks.gate_statistics import CellStatistics
from fairseq_depthwise.analysis.stacks.layer_similarity import LayerSimilarity
from fairseq_depthwise.tables import aligned, csv_text

#: A dataclass with the field ``layer``, and numbers or dataclasses of numbers.
Row = TypeVar("Row")


@dataclass(frozen=True)
class StackReport(Generic[Row]):
    """What was measured of a checkpoint.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        subset: part of the data.
        sentences: number of sentences read.
        tokens: number of tokens of each side, ends of sentences included.
        rows: of each side, from the lowest layer to the highest.
    """

    checkpoint: str
    architecture: str
    subset: str
    sentences: int
    tokens: Mapping[str, int]
    rows: Mapping[str, Sequence[Row]]


def report_on(
    loaded: LoadedModel,
    measure: Callable[[Iterator[StackBatch]], Mapping[str, Sequence[Row]]],
    *,
    sides: Sequence[str],
    subset: str,
    max_sentences: int,
    max_tokens: int,
) -> StackReport[Row]:
    """Measure the rows of each side on a part of the data, as in :meth:`LoadedModel.batches`, with a progress bar.

    Raises:
        UserError: the subset is missing or empty, the model has no such stacks, or computes values that are not finite.
    """
    batches = loaded.batches(subset, max_sentences=max_sentences, max_tokens=max_tokens)
    sentences, tokens = 0, dict.fromkeys(sides, 0)

    def counted() -> Iterator[StackBatch]:
        nonlocal sentences
        for batch in stack_batches(loaded, tqdm(batches, unit=" batches", leave=False, disable=None), sides):
            yield batch
            sentences += len(batch.net_input["src_tokens"])
            for side, padding in batch.padding.items():
                tokens[side] += int(padding.logical_not().sum())

    rows = measure(counted())
    _require_finite(loaded.path, rows)
    return StackReport(loaded.path, loaded.architecture, subset, sentences, tokens, rows)


def _require_finite(path: str, rows: Mapping[str, Sequence[Any]]) -> None:
    for side, of_side in rows.items():
        for row in of_side:
            if not all(math.isfinite(value) for value in _flat(row).values() if isinstance(value, float)):
                raise UserError(
                    f"{path} computes values in {side} layer {row.layer} that are not finite, as after a training that "
                    "diverged; give an earlier checkpoint"
                )


def _flat(row: Any) -> dict[str, Any]:
    """Return the fields of a row; those of a field ``norm`` are called ``norm_mean`` and so on."""
    flat: dict[str, Any] = {}
    for name, value in asdict(row).items():
        flat |= (
            {f"{name}_{part}": number for part, number in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat


def as_json(report: StackReport[Row]) -> dict[str, Any]:
    """Return one object, with a list of rows for each side, called layers; null for missing values."""
    return {
        "checkpoint": report.checkpoint,
        "architecture": report.architecture,
        "subset": report.subset,
        "sentences": report.sentences,
        **{
            side: {"tokens": report.tokens[side], "layers": [asdict(row) for row in rows]}  # type: ignore[call-overload]  # dataclasses
            for side, rows in report.rows.items()
        },
    }


def as_csv(reports: Sequence[StackReport[Row]]) -> str:
    """Return a line for each row of each side of each checkpoint; empty cells for missing values."""
    lines = [
        {"checkpoint": report.checkpoint, "side": side, **_flat(row)}
        for report in reports
        for side, rows in report.rows.items()
        for row in rows
    ]
    return csv_text(lines, list(lines[0]))


def similarity_table(report: StackReport[LayerSimilarity]) -> str:
    """Return a table of the similarities of each layer."""

    def cells(row: LayerSimilarity) -> list[str]:
        adjacent = "-" if row.adjacent_similarity is None else f"{row.adjacent_similarity:.3f}"
        return [str(row.layer), f"{row.emb_similarity:.3f}", adjacent, f"{row.inter_similarity:.3f}"]

    return _tables(report, ["layer", "emb-similarity", "adjacent similarity", "inter-similarity"], cells)


def gates_table(report: StackReport[CellStatistics]) -> str:
    """Return a table of the gates and norms of each cell."""
    columns = ["layer"]
    for gate in ("input gate", "forget gate", "output gate"):
        columns += [gate, "<0.1", ">0.9"]

    def cells(row: CellStatistics) -> list[str]:
        line = [f"{row.layer}{row.cell or ''}"]
        for gate in (row.input_gate, row.forget_gate, row.output_gate):
            line += [f"{gate.mean:.3f} ±{gate.deviation:.3f}", f"{gate.shut:.0%}", f"{gate.open:.0%}"]
        return [*line, *(f"{norm.mean:.2f} ±{norm.deviation:.2f}" for norm in (row.cell_norm, row.output_norm))]

    legend = "gates: mean, deviation and share of values below 0.1 and above 0.9; norms (L2): mean and deviation\n"
    if any(row.cell for rows in report.rows.values() for row in rows):
        legend += "two cells in a layer: a between its attentions, b above both\n"
    return _tables(report, [*columns, "cell norm", "output norm"], cells, legend)


def weights_table(report: StackReport[SourceWeight]) -> str:
    """Return a table for each side: a line for each layer that reads, a column for each source."""
    legend = "mean weight of each source in what a layer reads; above the last layer comes the stack's output\n"
    text = _heading(report, legend)
    for side, rows in report.rows.items():
        text += f"{side}: {report.tokens[side]:,} tokens\n"
        if not rows:
            text += "each layer reads what the one below passes on\n"
            continue
        readers, sources, weights = weights_matrix(rows)
        lines = [
            [reader, *("" if weight is None else f"{weight:.3f}" for weight in of_reader)]
            for reader, of_reader in zip(readers, weights, strict=True)
        ]
        text += aligned([["layer", *sources], *lines])
    return text


def weights_matrix(rows: Sequence[SourceWeight]) -> tuple[list[str], list[str], list[list[float | None]]]:
    """Return names of readers and sources, and a row of mean weights for each reader; None where it reads nothing."""
    numbers = list(dict.fromkeys(row.layer for row in rows))
    sources = list(dict.fromkeys(row.source for row in rows))
    found = {(row.layer, row.source): row.weight.mean for row in rows}
    return (
        [str(number) for number in numbers],
        sources,
        [[found.get((number, source)) for source in sources] for number in numbers],
    )


def _tables(
    report: StackReport[Row], columns: list[str], cells: Callable[[Row], Iterable[str]], legend: str = ""
) -> str:
    """Return a heading, and a table for each side."""
    text = _heading(report, legend)
    for side, rows in report.rows.items():
        text += f"{side}: {report.tokens[side]:,} tokens\n"
        text += aligned([columns, *(list(cells(row)) for row in rows)])
    return text


def _heading(report: StackReport[Row], legend: str) -> str:
    return f"{report.checkpoint}: {report.architecture}\n{report.subset}: {report.sentences:,} sentences\n{legend}"
