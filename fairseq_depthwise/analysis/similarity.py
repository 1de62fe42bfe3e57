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
    LayerRow,
    RunningMoments,
    StackBatch,
    StackReport,
    add_checkpoint_options,
    report_checkpoints,
    report_on,
)
from fairseq_depthwise.figures import draw_legend, draw_line, finish_panel, write_figure
from fairseq_depthwise.models.sdt.similarity import similarities_to_sentence
from fairseq_depthwise.tables import decimal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Field of a row -> title of its panel.
_PANELS = {
    "emb_similarity": "to the embedding",
    "adjacent_similarity": "to the layer below",
    "inter_similarity": "to the mean of the sentence",
}


@dataclass(frozen=True)
class LayerSimilarity(LayerRow):
    """Cosine similarities of one layer. Layer 0 is the embedding: it has similarity 1 to itself, and no layer below."""

    emb_similarity: float
    adjacent_similarity: float | None
    inter_similarity: float


class SimilaritySums:
    """The similarities of one layer, summed over batches."""

    def __init__(self) -> None:
        self.to_embedding = RunningMoments()
        self.to_below = RunningMoments()
        self.to_sentence = RunningMoments()

    def row(self, layer: int) -> LayerSimilarity:
        """Return the means."""
        adjacent = self.to_below.mean if layer else None
        return LayerSimilarity(layer, self.to_embedding.mean, adjacent, self.to_sentence.mean)


def measure_similarity(batches: Iterable[StackBatch]) -> dict[str, list[LayerSimilarity]]:
    """Run batches and return the similarities of each side's layers, 0 to L; batch sizes make no difference."""
    sums: dict[str, dict[int, SimilaritySums]] = defaultdict(lambda: defaultdict(SimilaritySums))
    for batch in batches:
        for side, states in batch.run().items():
            padding = batch.padding[side]  # B x T
            real = padding.logical_not().t()
            # Layer 0 is the embedding, compared with itself.
            embedding = below = states[0][real].double()  # N x C
            for layer, state in enumerate(states):
                vectors = state[real].double()
                of_layer = sums[side][layer]
                of_layer.to_embedding.add(F.cosine_similarity(vectors, embedding, dim=-1))
                of_layer.to_below.add(F.cosine_similarity(vectors, below, dim=-1))
                # T x B, of which the real positions count.
                of_layer.to_sentence.add(similarities_to_sentence(state.double(), padding)[real])
                below = vectors
    rows = {}
    for side, of_layers in sums.items():
        rows[side] = [of_layer.row(layer) for layer, of_layer in of_layers.items()]
    return rows


def as_text(report: StackReport) -> str:
    """Return a table of the similarities of each layer."""
    return report.table("", _lines_of)


def _lines_of(rows: Sequence[LayerSimilarity]) -> list[list[str]]:
    lines = [["layer", "emb-similarity", "adjacent similarity", "inter-similarity"]]
    for row in rows:
        values = [decimal(getattr(row, name), ".3f") for name in _PANELS]
        lines.append([str(row.layer), *values])
    return lines


def write_similarity(path: str, titles: Sequence[str], reports: Sequence[StackReport]) -> None:
    """Draw a panel for each similarity, with a line for each checkpoint, and a row of panels for each side."""
    sides = list(reports[0].rows)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(sides), len(_PANELS), squeeze=False)
        for side, panels in zip(sides, grid, strict=True):
            for axes, (measure, title) in zip(panels, _PANELS.items(), strict=True):
                lines = []
                for number, report in enumerate(reports):
                    points = [(row.layer, getattr(row, measure)) for row in report.rows[side]]
                    points = [(layer, value) for layer, value in points if value is not None]
                    lines.append(draw_line(axes, points, number))
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
