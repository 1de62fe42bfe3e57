"""What the analyses of stacks of layers share: batches that run through them, reports, and the style of their figures.

The decoder reads the reference, as in training and validation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.figures import style_of
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.tables import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

#: Approximate maximum number of markers on a line.
_MARKERS_SHOWN = 12


@dataclass(frozen=True)
class StackBatch:
    """A batch that is ready to run: as fairseq makes it, and where its padding is.

    ``padding`` has a mask for each side that runs, B x S or B x T, True at padding.
    """

    model: Any
    net_input: dict[str, Tensor]
    padding: dict[str, Tensor]

    @torch.no_grad()
    def run(self) -> dict[str, list[Tensor]]:
        """Return the embedding (after positions) and the output of each layer, L + 1 times T x B x C, of each side."""
        encoded = self.model.encoder(
            self.net_input["src_tokens"], src_lengths=self.net_input.get("src_lengths"), return_all_hiddens=True
        )
        states = {"encoder": encoded["encoder_states"]}
        if "decoder" in self.padding:
            _, extra = self.model.decoder(self.net_input["prev_output_tokens"], encoder_out=encoded, features_only=True)
            states["decoder"] = extra["inner_states"]
        return {side: states[side] for side in self.padding}


def stack_batches(
    loaded: LoadedModel, batches: Iterable[dict[str, Any]], sides: Iterable[str] = SIDES
) -> Iterator[StackBatch]:
    """Yield the batches of :meth:`LoadedModel.batches`, ready to run, of ours or fairseq's ``transformer``."""
    read = {
        "encoder": ("src_tokens", loaded.task.source_dictionary.pad()),
        "decoder": ("prev_output_tokens", loaded.task.target_dictionary.pad()),
    }
    for batch in batches:
        inputs = batch["net_input"]
        yield StackBatch(loaded.model, inputs, {side: inputs[read[side][0]].eq(read[side][1]) for side in sides})


@dataclass(frozen=True)
class StackReport:
    """What was measured of a checkpoint: for each side dataclasses with the field ``layer``, lowest first.

    ``tokens`` of each side were read, ends of sentences included.
    """

    checkpoint: str
    architecture: str
    subset: str
    sentences: int
    tokens: Mapping[str, int]
    rows: Mapping[str, Sequence[Any]]

    def document(self) -> dict[str, Any]:
        """Return one object of JSON, with a list of rows for each side, called layers."""
        names = ("checkpoint", "architecture", "subset", "sentences")
        return {
            **{name: getattr(self, name) for name in names},
            **{
                side: {"tokens": self.tokens[side], "layers": list(map(asdict, rows))}
                for side, rows in self.rows.items()
            },
        }

    def table(self, legend: str, of_side: Callable[[Sequence[Any]], list[list[str]]]) -> str:
        """Return a heading, and the table of the rows of each side."""
        text = f"{self.checkpoint}: {self.architecture}\n{self.subset}: {self.sentences:,} sentences\n{legend}"
        for side, rows in self.rows.items():
            text += f"{side}: {self.tokens[side]:,} tokens\n{aligned(of_side(rows))}"
        return text


def add_side(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option that chooses the stacks of an analysis."""
    parser.add_argument(
        "--side", choices=(*SIDES, "both"), default=default,
        help=f"which stack; the decoder reads the reference (default: {default})",
    )  # fmt: skip


def sides_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the stacks that were chosen."""
    return SIDES if options.side == "both" else (options.side,)


def report_on(
    loaded: LoadedModel,
    options: argparse.Namespace,
    sides: Sequence[str],
    measure: Callable[[Iterator[StackBatch]], Mapping[str, Sequence[Any]]],
) -> StackReport:
    """Measure the rows of each side on the part of the data that options name, with a progress bar."""
    batches = loaded.batches(options.subset, max_sentences=options.max_sentences, max_tokens=options.max_tokens)
    sentences, tokens = 0, dict.fromkeys(sides, 0)

    def counted() -> Iterator[StackBatch]:
        nonlocal sentences
        for batch in stack_batches(loaded, tqdm(batches, unit=" batches", leave=False, disable=None), sides):
            yield batch
            sentences += len(batch.net_input["src_tokens"])
            for side, padding in batch.padding.items():
                tokens[side] += int(padding.logical_not().sum())

    rows = measure(counted())
    return StackReport(loaded.path, loaded.architecture, options.subset, sentences, tokens, rows)


# --- figures ---------------------------------------------------------------------------------------------------------


def draw_line(axes: Axes, points: Sequence[tuple[float, float]], number: int) -> Line2D:
    """Draw line ``number``, from 0, of a panel."""
    (line,) = axes.plot(
        *zip(*points, strict=True),
        **style_of(number),
        markersize=4.5,
        markevery=-(-len(points) // _MARKERS_SHOWN),
    )
    return line


def finish_panel(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Give a panel over layers its title, labels and grid."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(True)


def draw_legend(figure: Any, lines: Sequence[Line2D], names: Sequence[str], columns: int) -> None:
    """Draw a legend below all panels; names are set afterwards, as a legend would interpret ``$`` and a first ``_``."""
    legend = figure.legend(lines, [str(number) for number in range(len(lines))], loc="outside lower center",
        ncols=columns, frameon=False)  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
