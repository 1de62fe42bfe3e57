"""Similarity of the outputs of a stack's layers: to the embedding, to each other, and within a sentence.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 3 and Figure 2. With ``h^l_p`` the output of
layer l at position p, and layer 0 the embedding after positions::

    emb-similarity       sim(h^l, h^0)       mean over p of cos(h^l_p, h^0_p)
    adjacent similarity  sim(h^l, h^(l-1))   mean over p of cos(h^l_p, h^(l-1)_p)
    inter-similarity                         mean over p of cos(h^l_p, mean over q of h^l_q), q in p's sentence

All non-padding positions have the same weight, including end-of-sentence.
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
    make_report,
    report_checkpoints,
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
    """Running means of the similarities of one layer."""

    def __init__(self) -> None:
        self.to_embedding = RunningMoments()
        self.to_layer_below = RunningMoments()
        self.to_sentence = RunningMoments()

    def make_row(self, layer: int) -> LayerSimilarity:
        """Return the means, of the layer of this number."""
        return LayerSimilarity(
            layer,
            emb_similarity=self.to_embedding.mean,
            adjacent_similarity=self.to_layer_below.mean if layer else None,
            inter_similarity=self.to_sentence.mean,
        )


def measure_similarity(batches: Iterable[StackBatch]) -> dict[str, list[LayerSimilarity]]:
    """Run batches and return the similarities of each side's layers, 0 to L; batch sizes make no difference."""
    sums: dict[str, dict[int, SimilaritySums]] = defaultdict(lambda: defaultdict(SimilaritySums))
    for batch in batches:
        for side, states in batch.run().items():
            padding = batch.padding[side]  # B x T
            is_token = padding.logical_not().t()  # T x B
            # Layer 0 is the embedding, compared with itself.
            embedding = states[0][is_token].double()  # N x C
            layer_below = embedding
            for layer, state in enumerate(states):
                output = state[is_token].double()
                to_sentence = similarities_to_sentence(state.double(), padding)  # T x B
                layer_sums = sums[side][layer]
                layer_sums.to_embedding.add(F.cosine_similarity(output, embedding, dim=-1))
                layer_sums.to_layer_below.add(F.cosine_similarity(output, layer_below, dim=-1))
                layer_sums.to_sentence.add(to_sentence[is_token])
                layer_below = output
    rows = {}
    for side, side_sums in sums.items():
        rows[side] = [layer_sums.make_row(layer) for layer, layer_sums in side_sums.items()]
    return rows


def format_report(report: StackReport) -> str:
    """Return a table of the similarities of each layer."""
    return report.format_tables("", _format_rows)


def _format_rows(rows: Sequence[LayerSimilarity]) -> list[list[str]]:
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

    height = 3.2 * len(sides) + 0.25 * len(titles)  # inches: a row of panels for each side, and the legend
    write_figure(path, (11.0, height), draw)


def report_similarity(options: argparse.Namespace) -> None:
    """Measure, print and draw what ``fairseq-depthwise similarity`` was asked for."""
    measure = partial(make_report, measure=measure_similarity)
    report_checkpoints(options, measure, format_report, {"output": write_similarity})
