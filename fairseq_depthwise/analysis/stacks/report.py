"""What was measured of the layers of one or both stacks of a checkpoint, with its JSON and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.stacks.batches import StackBatch, stack_batches

#: A dataclass with the field ``layer``, and numbers or dataclasses of numbers.
Row = TypeVar("Row")


@dataclass(frozen=True)
class StackReport(Generic[Row]):
    """What was measured of a checkpoint.

    Attributes:
        checkpoint: the file.
        architecture: as given in training.
        subset: part of the data.
        sentences: how many were read.
        tokens: of each side, how many, the ends of sentences among them.
        rows: of each side, what was measured from the lowest layer to the highest.
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
    progress: Callable[[int, int], None] = lambda done, batches: None,
) -> StackReport[Row]:
    """Measure a loaded model on a part of its data.

    Args:
        loaded: the model and its data.
        measure: runs the batches and returns the rows of each side.
        sides: which stacks to look at.
        subset, max_sentences, max_tokens: as in :meth:`LoadedModel.batches`.
        progress: called with the number of batches done and of all.

    Raises:
        UserError: the subset is missing or empty, the model has no such stacks, or computes what is no number.
    """
    batches = loaded.batches(subset, max_sentences=max_sentences, max_tokens=max_tokens)
    count, sentences, tokens = len(batches), 0, dict.fromkeys(sides, 0)

    def counted() -> Iterator[StackBatch]:
        nonlocal sentences
        for done, batch in enumerate(stack_batches(loaded, batches, sides), start=1):
            yield batch
            sentences += len(batch.net_input["src_tokens"])
            for side, padding in batch.padding.items():
                tokens[side] += int(padding.logical_not().sum())
            progress(done, count)

    rows = measure(counted())
    _require_numbers(loaded.path, rows)
    return StackReport(loaded.path, loaded.architecture, subset, sentences, tokens, rows)


def _require_numbers(path: str, rows: Mapping[str, Sequence[Any]]) -> None:
    """A training that diverged leaves NaN or infinity, which every layer above carries on."""
    for side, of_side in rows.items():
        for row in of_side:
            if not all(math.isfinite(value) for value in _flat(row).values() if isinstance(value, float)):
                raise UserError(
                    f"{path} computes values in {side} layer {row.layer} that are not finite, as after a training that "
                    "diverged; give an earlier checkpoint"
                )


def as_json(report: StackReport[Row]) -> dict[str, Any]:
    """One object, with a list of layers for each side; null for what there is not."""
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
    """A line for each row of each side of each checkpoint; empty for what there is not."""
    lines = [
        {"checkpoint": report.checkpoint, "side": side, **_flat(row)}
        for report in reports
        for side, rows in report.rows.items()
        for row in rows
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flat(row: Any) -> dict[str, Any]:
    """The fields of a row; those of a field ``norm`` are called ``norm_mean`` and so on."""
    found: dict[str, Any] = {}
    for name, value in asdict(row).items():
        found |= {f"{name}_{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    return found
