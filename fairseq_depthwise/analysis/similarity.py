"""Similarity of the outputs of a stack's layers: to the embedding, to each other, and within a sentence.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 3 and Figure 2. With ``h^l_p`` the output of
layer l at position p, and layer 0 the embedding after positions::

    emb-similarity       sim(h^l, h^0)       mean over p of cos(h^l_p, h^0_p)
    adjacent similarity  sim(h^l, h^(l-1))   mean over p of cos(h^l_p, h^(l-1)_p)
    inter-similarity                         mean over p of cos(h^l_p, mean over q of h^l_q), q in p's sentence

All real positions have the same weight, ends of sentences included.

example:
  fairseq-depthwise similarity 6l.pt 12l.pt 24l.pt --data data-bin --output similarity.pdf
  fairseq-depthwise similarity checkpoints/checkpoint_best.pt --data data-bin --side both --json
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F

from fairseq_depthwise.analysis.analysis import (
    RunningMoments,
    StackBatch,
    StackReport,
    add_checkpoint_options,
    draw_legend,
    draw_line,
    finish_panel,
    report_checkpoints,
    report_on,
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


def measure_similarity(batches: Iterable[StackBatch]) -> dict[str, list[LayerSimilarity]]:
    """Run batches and return the similarities of each side's layers, 0 to L, whatever the size of the batches."""
    sums: dict[tuple[str, int], list[RunningMoments]] = defaultdict(lambda: [RunningMoments() for _ in _PANELS])
    for batch in batches:
        for side, states in batch.run().items():
            padding = batch.padding[side]
            real = padding.logical_not().t()
            embedding = below = states[0][real].double()  # N x C
            for layer, state in enumerate(states):
                vectors = state[real].double()
                to_below = (F.cosine_similarity(vectors, other, dim=-1) for other in (embedding, below))
                to_sentence = similarities_to_sentence(state.double(), padding)[real]
                for moments, values in zip(sums[side, layer], (*to_below, to_sentence), strict=True):
                    moments.add(values)
                below = vectors
    rows: dict[str, list[LayerSimilarity]] = {}
    for (side, layer), (to_embedding, adjacent, inter) in sums.items():
        row = LayerSimilarity(layer, to_embedding.mean, adjacent.mean if layer else None, inter.mean)
        rows.setdefault(side, []).append(row)
    return rows


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

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(sides), len(_PANELS), squeeze=False)
        for side, panels in zip(sides, grid, strict=True):
            for (measure, title), axes in zip(_PANELS.items(), panels, strict=True):
                lines = []
                for number, report in enumerate(reports):
                    points = [(row.layer, getattr(row, measure)) for row in report.rows[side]]
                    lines.append(draw_line(axes, [point for point in points if point[1] is not None], number))
                finish_panel(axes, title, f"{side} layer", "cosine similarity")
        draw_legend(figure, lines, titles)

    write_figure(path, (11.0, 3.2 * len(sides) + 0.25 * len(titles)), draw)


def add_to(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(
        parser,
        models="this plugin's families, or of fairseq's own transformer",
        drawn="the similarities",
        side="encoder",
    )


def run(options: argparse.Namespace) -> None:
    report_checkpoints(options, partial(report_on, measure=measure_similarity), as_text, {"output": write_similarity})
