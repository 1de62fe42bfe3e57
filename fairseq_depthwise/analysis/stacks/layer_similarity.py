"""Similarity of the outputs of a stack's layers: to the embedding, to each other, and within a sentence.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 3 and Figure 2. With ``h^l_p`` the output of
layer l at position p, and layer 0 the embedding after positions::

    emb-similarity       sim(h^l, h^0)       mean over p of cos(h^l_p, h^0_p)
    adjacent similarity  sim(h^l, h^(l-1))   mean over p of cos(h^l_p, h^(l-1)_p)
    inter-similarity                         mean over p of cos(h^l_p, mean over q of h^l_q), q in p's sentence

All real positions have the same weight, ends of sentences included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fairseq_depthwise.analysis.stacks.batches import StackBatch
from fairseq_depthwise.models.sdt.similarity import similarities_to_sentence


@dataclass(frozen=True)
class LayerSimilarity:
    """Cosine similarities of one layer.

    Attributes:
        layer: number of the layer; 0 is the embedding.
        emb_similarity: to the embedding at the same position; 1 for layer 0.
        adjacent_similarity: to the layer below; None for layer 0.
        inter_similarity: to the mean of the sentence.
    """

    layer: int
    emb_similarity: float
    adjacent_similarity: float | None
    inter_similarity: float


class LayerSimilaritySums:
    """The similarities of a stack's layers, summed over batches in float64."""

    def __init__(self) -> None:
        self.positions = 0
        self._sums: list[list[float]] = []

    def add(self, states: Sequence[Tensor], padding: Tensor) -> None:
        """Add a batch.

        Args:
            states: embedding and layers' outputs, L + 1 times T x B x C.
            padding: B x T, True at padding.
        """
        real = padding.logical_not().t()
        self._sums = self._sums or [[0.0, 0.0, 0.0] for _ in states]
        self.positions += int(real.sum())
        embedding = below = states[0][real].double()
        for sums, state in zip(self._sums, states, strict=True):
            vectors = state[real].double()  # N x C
            sums[0] += float(F.cosine_similarity(vectors, embedding, dim=-1).sum())
            sums[1] += float(F.cosine_similarity(vectors, below, dim=-1).sum())
            sums[2] += float(similarities_to_sentence(state.double(), padding).sum())
            below = vectors

    def value(self) -> tuple[LayerSimilarity, ...]:
        """Return the similarities of layers 0 to L."""
        rows = []
        for layer, sums in enumerate(self._sums):
            to_embedding, to_below, to_sentence = (value / self.positions for value in sums)
            rows.append(LayerSimilarity(layer, to_embedding, to_below if layer else None, to_sentence))
        return tuple(rows)


def measure_similarity(batches: Iterable[StackBatch]) -> dict[str, tuple[LayerSimilarity, ...]]:
    """Run batches and return the similarities of each side's layers, whatever the size of the batches."""
    sums: dict[str, LayerSimilaritySums] = {}
    for batch in batches:
        for side, states in batch.run().items():
            sums.setdefault(side, LayerSimilaritySums()).add(states, batch.padding[side])
    return {side: similarity.value() for side, similarity in sums.items()}
