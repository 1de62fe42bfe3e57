"""Shared by all analyses: options, batches that run through a model, sums and reports.

``similarity.py`` is the shortest example of an analysis: rows, what measures them, a table and a figure.
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
from fairseq_depthwise.options import positive_int, require_extra
from fairseq_depthwise.tables import aligned, json_text

#: Side -> the tokens that it reads, in fairseq's batches.
_TOKENS = {"encoder": "src_tokens", "decoder": "prev_output_tokens"}


# --- options ---------------------------------------------------------------------------------------------------------


def add_data_options(parser: argparse.ArgumentParser, *, subset: str, about: str) -> None:
    """Add the options for the sentences that an analysis reads, and for its batches."""
    parser.add_argument("--data", required=True, metavar="BIN", help="the folder that fairseq-preprocess made")
    parser.add_argument("--subset", default=subset, metavar="NAME", help=f"{about} (default: {subset})")
    parser.add_argument(
        "--max-tokens",
        type=positive_int,
        default=4096,
        metavar="N",
        help="tokens in a batch; the result does not depend on it (default: 4096)",
    )


def add_checkpoint_options(
    parser: argparse.ArgumentParser, *, models: str, drawn: str, side: str | None = None
) -> None:
    """Add the options of an analysis that measures one checkpoint after the other.

    Args:
        parser: of the subcommand.
        models: which checkpoints it takes, for the help.
        drawn: what its figure shows, for the help.
        side: default of ``--side``; None for an analysis of encoders alone.
    """
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=f"checkpoints of {models}")
    add_data_options(parser, subset="valid", about="part of the data")
    parser.add_argument(
        "--max-sentences",
        type=positive_int,
        default=1000,
        metavar="N",
        help="read the first N sentences (default: 1000)",
    )
    parser.add_argument("--output", metavar="FIGURE", help=f"draw {drawn}: .png, .pdf or .svg")
    parser.add_argument("--force", action="store_true", help="replace a figure that exists")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    # Analyses of encoders alone have no --side.
    parser.set_defaults(side="encoder")
    if side is not None:
        parser.add_argument(
            "--side",
            choices=(*SIDES, "both"),
            default=side,
            help=f"which stack; the decoder reads the reference (default: {side})",
        )


def sides_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the stacks that ``--side`` names."""
    return SIDES if options.side == "both" else (options.side,)


# --- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StackBatch:
    """A batch that is ready to run.

    Attributes:
        model: the model that runs it.
        net_input: its arguments; the decoder reads the reference, as in training and validation.
        padding: a mask for each side that runs, B x S or B x T, True at padding.
        target: the tokens that the decoder is to predict, B x T.
    """

    model: Any
    net_input: dict[str, Tensor]
    padding: dict[str, Tensor]
    target: Tensor | None = None

    @torch.no_grad()
    def run(self) -> dict[str, list[Tensor]]:
        """Return the embedding (after positions) and the output of each layer, L + 1 times T x B x C, of each side."""
        # fairseq's own Transformer takes the same arguments and has the same names in what it returns.
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
        """Return the loss of the reference in bits, summed over its tokens, and their number."""
        assert self.target is not None
        logits, _ = self.model(**self.net_input)  # B x T x V
        # B x T, False at padding.
        real = self.target.ne(self.model.decoder.dictionary.pad())
        loss = F.cross_entropy(logits[real].double(), self.target[real], reduction="sum")
        return float(loss) / math.log(2), int(real.sum())


def stack_batches(
    loaded: LoadedModel, batches: Iterable[dict[str, Any]], sides: Iterable[str] = SIDES
) -> Iterator[StackBatch]:
    """Yield the batches of :meth:`LoadedModel.batches`, ready to run, of ours or fairseq's ``transformer``."""
    dictionaries = {"encoder": loaded.task.source_dictionary, "decoder": loaded.task.target_dictionary}
    for batch in batches:
        net_input = batch["net_input"]
        padding = {side: net_input[_TOKENS[side]].eq(dictionaries[side].pad()) for side in sides}
        yield StackBatch(loaded.model, net_input, padding, batch["target"])


# --- sums ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanDeviation:
    """Mean and population standard deviation (squares are divided by n)."""

    mean: float
    deviation: float


class RunningMoments:
    """Sums of values that come in parts, in float64.

    Squared differences from the mean are combined by the formulas of Chan, Golub and LeVeque ("Updating Formulae and a
    Pairwise Algorithm for Computing Sample Variances", 1979), which are exact for small deviations from a large mean.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        added = values.numel()
        if not added:
            return
        values = values.double()
        mean = float(values.mean())
        distance = mean - self.mean
        count = self.count + added
        # The squares around both means, and the squared distance of the means.
        self._squares += float((values - mean).square().sum())
        self._squares += distance**2 * self.count * added / count
        self.mean += distance * added / count
        self.count = count

    def value(self) -> MeanDeviation:
        """Return mean and deviation of at least one value."""
        return MeanDeviation(self.mean, math.sqrt(self._squares / self.count))


# --- reports ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerRow:
    """The measurements of a layer or a part of it; each analysis adds its fields."""

    layer: Any

    def document(self) -> dict[str, Any]:
        """Return one object of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class StackReport:
    """The measurements of a checkpoint.

    Attributes:
        checkpoint, architecture: the file, and the ``--arch`` of its training.
        subset, sentences: the part of the data, and how many sentences of it were read.
        tokens: number for each side, ends of sentences included.
        rows: for each side a :class:`LayerRow` for each layer, lowest first.
    """

    checkpoint: str
    architecture: str
    subset: str
    sentences: int
    tokens: Mapping[str, int]
    rows: Mapping[str, Sequence[Any]]

    def document(self) -> dict[str, Any]:
        """Return one object of JSON, with a list of rows for each side, called layers."""
        document: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "architecture": self.architecture,
            "subset": self.subset,
            "sentences": self.sentences,
        }
        for side, rows in self.rows.items():
            document[side] = {"tokens": self.tokens[side], "layers": [row.document() for row in rows]}
        return document

    def table(self, legend: str, lines_of: Callable[[Sequence[Any]], list[list[str]]]) -> str:
        """Return a heading, and a table for each side; ``lines_of`` makes lines of cells of its rows."""
        text = f"{self.checkpoint}: {self.architecture}\n{self.subset}: {self.sentences:,} sentences\n{legend}"
        for side, rows in self.rows.items():
            text += f"{side}: {self.tokens[side]:,} tokens\n{aligned(lines_of(rows))}"
        return text


def report_on(
    loaded: LoadedModel,
    options: argparse.Namespace,
    measure: Callable[[Iterator[StackBatch]], Mapping[str, Sequence[Any]]],
) -> StackReport:
    """Measure the rows of each side on the part of the data that options name, with a progress bar."""
    sides = sides_of(options)
    batches = loaded.batches(options.subset, max_sentences=options.max_sentences, max_tokens=options.max_tokens)
    sentences = 0
    tokens = dict.fromkeys(sides, 0)

    def count_batches() -> Iterator[StackBatch]:
        nonlocal sentences
        progress = tqdm(batches, unit=" batches", leave=False, disable=None)
        for batch in stack_batches(loaded, progress, sides):
            yield batch
            sentences += len(batch.net_input["src_tokens"])
            for side, padding in batch.padding.items():
                tokens[side] += int(padding.logical_not().sum())

    rows = measure(count_batches())
    return StackReport(loaded.path, loaded.architecture, options.subset, sentences, tokens, rows)


def report_checkpoints(
    options: argparse.Namespace,
    measure: Callable[[LoadedModel, argparse.Namespace], StackReport],
    as_text: Callable[[Any], str],
    drawings: Mapping[str, Callable[[str, Sequence[str], Sequence[Any]], None]],
    family: str | None = None,
) -> None:
    """Measure one checkpoint after the other, so that one model is in memory; print and draw the reports.

    Args:
        options: of the subcommand.
        measure: makes the report of a model.
        as_text: makes text of a report.
        drawings: option that names a figure -> what draws the reports, with a title each, into it.
        family: which the checkpoints must belong to.
    """
    paths = _figure_paths(options, drawings)
    reports = []
    # fairseq logs all options of each checkpoint.
    with fairseq_warnings_only():
        for checkpoint in options.checkpoints:
            print(f"reading {checkpoint}", file=sys.stderr)
            loaded = load_model(checkpoint, options.data, family=family)
            reports.append(measure(loaded, options))
    if options.json:
        documents = [report.document() for report in reports]
        print(json_text({"data": options.data, "checkpoints": documents}))
    else:
        print("\n".join(map(as_text, reports)), end="")
    for name, path in paths.items():
        drawings[name](path, figures.titles_of(options.checkpoints), reports)
        print(f"{path} written", file=sys.stderr)


def _figure_paths(options: argparse.Namespace, names: Iterable[str]) -> dict[str, str]:
    """Return the figures that options ask for, by option; they are checked before anything is computed."""
    paths = {}
    for name in names:
        path = getattr(options, name)
        if path is None:
            continue
        option = f"--{name.replace('_', '-')}"
        paths[name] = figures.figure_path(option, path, force=options.force, inputs=options.checkpoints)
        require_extra("analysis", "matplotlib")
    return paths
