"""Helpers shared by all analyses: batches, running moments, reports.

:func:`report_checkpoints` is the entry point. ``similarity.py`` is the shortest example of an analysis: its rows, how
they are measured, a table and a figure.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from fairseq_depthwise import figures
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.tables import aligned, json_text

#: Side -> name of its input tokens in fairseq's batches.
_INPUT_TOKENS = {"encoder": "src_tokens", "decoder": "prev_output_tokens"}


def select_sides(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the stacks that ``--side`` selects."""
    return SIDES if options.side == "both" else (options.side,)


# --- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StackBatch:
    """A batch that is ready to run.

    Attributes:
        model: the model that runs it.
        net_input: its arguments; the decoder reads the reference, as in training and validation.
        padding: mask of each side that runs, B x S or B x T, True at padding.
        target: tokens that the decoder is to predict, B x T.
    """

    model: Any
    net_input: dict[str, Tensor]
    padding: dict[str, Tensor]
    target: Tensor | None = None

    @torch.no_grad()
    def run(self) -> dict[str, list[Tensor]]:
        """Return, for each side, L + 1 tensors (T x B x C): the embedding, with positions, and each layer's output."""
        # fairseq's own Transformer has the same arguments, and the same keys in its results.
        encoded = self.model.encoder(
            self.net_input["src_tokens"], src_lengths=self.net_input.get("src_lengths"), return_all_hiddens=True
        )
        states = {"encoder": encoded["encoder_states"]}
        if "decoder" in self.padding:
            _, extra = self.model.decoder(self.net_input["prev_output_tokens"], encoder_out=encoded, features_only=True)
            states["decoder"] = extra["inner_states"]
        return {side: states[side] for side in self.padding}

    @torch.no_grad()
    def loss(self) -> tuple[float, int]:
        """Return the summed cross-entropy of the reference in bits, and its number of tokens."""
        assert self.target is not None
        logits, _ = self.model(**self.net_input)  # B x T x V
        is_token = self.target.ne(self.model.decoder.dictionary.pad())  # B x T, False at padding
        loss = F.cross_entropy(logits[is_token].double(), self.target[is_token], reduction="sum")
        return float(loss) / math.log(2), int(is_token.sum())


def prepare_batches(
    loaded: LoadedModel, batches: Iterable[dict[str, Any]], sides: Iterable[str] = SIDES
) -> Iterator[StackBatch]:
    """Yield the batches of :meth:`LoadedModel.batches`, ready to run, of our models or fairseq's ``transformer``."""
    dictionaries = {"encoder": loaded.task.source_dictionary, "decoder": loaded.task.target_dictionary}
    for batch in batches:
        net_input = batch["net_input"]
        padding = {side: net_input[_INPUT_TOKENS[side]].eq(dictionaries[side].pad()) for side in sides}
        yield StackBatch(loaded.model, net_input, padding, batch["target"])


# --- running moments -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanAndDeviation:
    """Mean and population standard deviation (the sum of squares is divided by n)."""

    mean: float
    deviation: float


class RunningMoments:
    """Running mean and variance of values added in batches, in float64.

    Sums of squares are merged by the formulas of Chan, Golub and LeVeque ("Updating Formulae and a Pairwise Algorithm
    for Computing Sample Variances", 1979), which stay accurate when the deviations are small compared with the mean.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._sum_of_squares = 0.0

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        batch_count = values.numel()
        if not batch_count:
            return
        values = values.double()
        batch_mean = float(values.mean())
        delta = batch_mean - self.mean
        total = self.count + batch_count
        # Within-batch squares, plus the term for the difference between the two means.
        self._sum_of_squares += float((values - batch_mean).square().sum())
        self._sum_of_squares += delta**2 * self.count * batch_count / total
        self.mean += delta * batch_count / total
        self.count = total

    def compute(self) -> MeanAndDeviation:
        """Return mean and standard deviation of at least one value."""
        return MeanAndDeviation(self.mean, math.sqrt(self._sum_of_squares / self.count))


# --- reports ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerRow:
    """The measurements of a layer or a part of it; each analysis adds its fields."""

    layer: Any

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class StackReport:
    """The measurements of a checkpoint.

    Attributes:
        checkpoint: path of the file.
        architecture: the ``--arch`` of its training.
        subset: name of the subset of the data.
        sentences: number of sentences that were read.
        tokens: number of tokens by side, end-of-sentence included.
        rows: by side, a :class:`LayerRow` for each layer, lowest first.
    """

    checkpoint: str
    architecture: str
    subset: str
    sentences: int
    tokens: Mapping[str, int]
    rows: Mapping[str, Sequence[Any]]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object; each side has its rows as ``layers``."""
        document: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "architecture": self.architecture,
            "subset": self.subset,
            "sentences": self.sentences,
        }
        for side, rows in self.rows.items():
            document[side] = {"tokens": self.tokens[side], "layers": [row.to_json() for row in rows]}
        return document

    def format_tables(self, legend: str, format_rows: Callable[[Sequence[Any]], list[list[str]]]) -> str:
        """Return a heading, and a table for each side.

        ``format_rows``: rows of a side -> lines of its table, each a list of cells; the first is the header.
        """
        text = f"{self.checkpoint}: {self.architecture}\n{self.subset}: {self.sentences:,} sentences\n{legend}"
        for side, rows in self.rows.items():
            text += f"{side}: {self.tokens[side]:,} tokens\n{aligned(format_rows(rows))}"
        return text


def make_report(
    loaded: LoadedModel,
    options: argparse.Namespace,
    measure: Callable[[Iterator[StackBatch]], Mapping[str, Sequence[Any]]],
) -> StackReport:
    """Measure the rows of each side on the subset that options select, with a progress bar.

    ``measure``: batches -> rows by side.
    """
    sides = select_sides(options)
    batches = loaded.batches(options.subset, max_sentences=options.max_sentences, max_tokens=options.max_tokens)
    sentences = 0
    tokens = dict.fromkeys(sides, 0)

    def counted_batches() -> Iterator[StackBatch]:
        nonlocal sentences
        progress = tqdm(batches, unit=" batches", leave=False, disable=None)
        for batch in prepare_batches(loaded, progress, sides):
            sentences += len(batch.net_input["src_tokens"])
            for side, padding in batch.padding.items():
                tokens[side] += int(padding.logical_not().sum())
            yield batch

    # The totals are complete once measure has read all batches.
    rows = measure(counted_batches())
    return StackReport(
        checkpoint=loaded.path,
        architecture=loaded.architecture,
        subset=options.subset,
        sentences=sentences,
        tokens=tokens,
        rows=rows,
    )


def report_checkpoints(
    options: argparse.Namespace,
    measure: Callable[[LoadedModel, argparse.Namespace], StackReport],
    format_report: Callable[[Any], str],
    drawings: Mapping[str, Callable[[str, Sequence[str], Sequence[Any]], None]],
    family: str | None = None,
) -> None:
    """Measure one checkpoint after the other, so that only one model is in memory; print and draw the reports.

    Args:
        options: parsed options of the subcommand, which has checked them.
        measure: function(model, options) that returns the report of a model.
        format_report: report -> its text.
        drawings: figure option -> function(path, titles, reports) that draws the figure.
        family: model family that the checkpoints must belong to; None for any.
    """
    reports = []
    # fairseq would log all options of each checkpoint.
    with fairseq_warnings_only():
        for checkpoint in options.checkpoints:
            print(f"reading {checkpoint}", file=sys.stderr)
            loaded = load_model(checkpoint, options.data, family=family)
            reports.append(measure(loaded, options))
    if options.json:
        documents = [report.to_json() for report in reports]
        print(json_text({"data": options.data, "checkpoints": documents}))
    else:
        print("\n".join(map(format_report, reports)), end="")
    titles = figures.make_titles(options.checkpoints)
    for name, draw in drawings.items():
        path = getattr(options, name)
        if path is not None:
            draw(path, titles, reports)
            print(f"{path} written", file=sys.stderr)
