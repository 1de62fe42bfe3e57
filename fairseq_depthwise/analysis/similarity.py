"""Similarity of the outputs of a stack's layers: to the embedding, to each other, and within a sentence.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 3 and Figure 2. With ``h^l_p`` the output of
layer l at position p, and layer 0 the embedding after positions::

    emb-similarity       sim(h^l, h^0)       mean over p of cos(h^l_p, h^0_p)
    adjacent similarity  sim(h^l, h^(l-1))   mean over p of cos(h^l_p, h^(l-1)_p)
    inter-similarity                         mean over p of cos(h^l_p, mean over q of h^l_q), q in p's sentence

All real positions have the same weight, ends of sentences included.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F

from fairseq_depthwise.analysis.analysis import Analysis, add_checkpoint_options, report_checkpoints
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.moments import RunningMoments
from fairseq_depthwise.analysis.stacks import (
    StackBatch,
    StackReport,
    add_side,
    draw_legend,
    draw_line,
    finish_panel,
    report_on,
    sides_of,
)
from fairseq_depthwise.figures import write_figure
from fairseq_depthwise.models.sdt.similarity import similarities_to_sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Field of a row -> title of its panel.
_PANELS = {
    "emb_similarity": "to the embedding",
    "adjacent_similarity": "to the layer below",
    "inter_similarity": "to the mean of the sentence",
}


@dataclass(frozen=True)
class LayerSimilarity:
    """Cosine similarities of one layer; layer 0 is the embedding, to which it has 1 and below which is nothing."""

    layer: int
    emb_similarity: float
    adjacent_similarity: float | None
    inter_similarity: float


def measure_similarity(batches: Iterable[StackBatch]) -> dict[str, tuple[LayerSimilarity, ...]]:
    """Run batches and return the similarities of each side's layers, 0 to L, whatever the size of the batches."""
    sums: dict[str, list[list[RunningMoments]]] = {}
    for batch in batches:
        for side, states in batch.run().items():
            padding = batch.padding[side]
            real = padding.logical_not().t()
            embedding = below = states[0][real].double()  # N x C
            of_side = sums.setdefault(side, [[RunningMoments() for _ in _PANELS] for _ in states])
            for of_layer, state in zip(of_side, states, strict=True):
                vectors = state[real].double()
                to_below = (F.cosine_similarity(vectors, other, dim=-1) for other in (embedding, below))
                to_sentence = similarities_to_sentence(state.double(), padding)[real]
                for moments, values in zip(of_layer, (*to_below, to_sentence), strict=True):
                    moments.add(values)
                below = vectors
    found = {side: [[one.mean for one in of_layer] for of_layer in of_side] for side, of_side in sums.items()}
    return {
        side: tuple(
            LayerSimilarity(layer, to_embedding, to_below if layer else None, to_sentence)
            for layer, (to_embedding, to_below, to_sentence) in enumerate(of_side)
        )
        for side, of_side in found.items()
    }


def as_text(report: StackReport) -> str:
    """Return a table of the similarities of each layer."""

    def of_side(rows: Sequence[LayerSimilarity]) -> list[list[str]]:
        lines = [["layer", "emb-similarity", "adjacent similarity", "inter-similarity"]]
        for row in rows:
            values = (getattr(row, name) for name in _PANELS)
            lines.append([str(row.layer), *("-" if value is None else f"{value:.3f}" for value in values)])
        return lines

    return report.table("", of_side)


def write_similarity(path: str, titles: Sequence[str], reports: Sequence[StackReport]) -> None:
    """Draw a panel for each similarity, with a line for each checkpoint, and a row of panels for each side."""
    sides = list(reports[0].rows)
    columns = max(1, min(len(titles), int(110 / (max(map(len, titles)) + 8))))  # of the legend

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(sides), len(_PANELS), squeeze=False)
        for side, panels in zip(sides, grid, strict=True):
            for (measure, title), axes in zip(_PANELS.items(), panels, strict=True):
                lines = []
                for number, report in enumerate(reports):
                    points = [(row.layer, getattr(row, measure)) for row in report.rows[side]]
                    lines.append(draw_line(axes, [point for point in points if point[1] is not None], number))
                finish_panel(axes, title, f"{side} layer", "cosine similarity")
        draw_legend(figure, lines, titles, columns)

    write_figure(path, (11.0, 3.2 * len(sides) + 0.25 * (1 + len(titles) // columns)), draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    models = "this plugin's families, or of fairseq's own transformer"
    add_checkpoint_options(parser, models=models, drawn="the similarities")
    add_side(parser, default="encoder")


def _measure(options: argparse.Namespace, path: str) -> StackReport:
    return report_on(load_model(path, options.data), options, sides_of(options), measure_similarity)


ANALYSIS = Analysis(
    help="measure the cosine similarity of each layer's output to the embedding, to the layer below, and to the mean "
    "of its sentence",
    example="fairseq-depthwise similarity 6l.pt 12l.pt 24l.pt --data data-bin --output similarity.pdf\n"
    "  fairseq-depthwise similarity checkpoints/checkpoint_best.pt --data data-bin --side both --json",
    add_options=_add_options,
    run=lambda options: report_checkpoints(options, partial(_measure, options), as_text, {"output": write_similarity}),
)
