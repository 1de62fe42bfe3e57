"""Words that a translation must contain: fairseq's lexically constrained beam search (Hu et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fairseq import search
from fairseq.data import Dictionary
from fairseq.search import LexicallyConstrainedBeamSearch
from torch import Tensor

from fairseq_compat import UserError

#: Log-probabilities, tokens and beams of the best candidates, each B x 2k.
Candidates = tuple[Tensor, Tensor, Tensor]


class ConstrainedSearch(LexicallyConstrainedBeamSearch):
    """fairseq's search after a prefix of ``prefix`` tokens, such as a language token, that starts every hypothesis.

    fairseq's own search would propose constraints in place of the prefix, all equally improbable, and could lose it. It
    also fails if no hypothesis meets all constraints at the last position; this one ends with those that do.
    """

    def __init__(self, dictionary: Dictionary, order: str, *, prefix: int, beam: int) -> None:
        # In the first step fairseq takes 2k candidates from a single hypothesis, padding excluded.
        if 2 * beam >= len(dictionary):
            raise UserError(f"--beam {beam} is too large for constraints and a dictionary of {len(dictionary):,}")
        super().__init__(dictionary, order)
        # Otherwise fairseq's generator asserts that all sentences have ended by the maximum length.
        self.stop_on_max_len = True
        self._prefix = prefix
        self._unconstrained = search.BeamSearch(dictionary)

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor | None,
        prev_output_tokens: Tensor | None = None,
        original_batch_idxs: Tensor | None = None,
    ) -> Candidates:
        """Return the best candidates, given the log-probabilities of all (B x k x V)."""
        candidates: Candidates
        if step < self._prefix:
            candidates = self._unconstrained.step(step, lprobs, scores)
            # No constraint has begun: the initial state, for each candidate.
            count = candidates[0].size(1)
            self.constraint_states: list[Any] = [states[:1] * count for states in self.constraint_states]
            return candidates
        if step == self._prefix > 0:
            # Only the first hypothesis has the prefix. In its step 0 fairseq considers only that one.
            assert scores is not None
            lprobs = lprobs + scores[:, :, step - 1 : step]
            # Only after step 0 does fairseq keep hypotheses from ending before they have all constraints.
            lprobs[:, :, self.eos] = -math.inf
            step, scores = 0, None
        candidates = super().step(step, lprobs, scores, prev_output_tokens, original_batch_idxs)
        return candidates


def contains(tokens: Sequence[int], constraint: Sequence[int]) -> bool:
    """Return whether tokens contain those of a constraint in a row."""
    length = len(constraint)
    return any(tokens[place : place + length] == constraint for place in range(len(tokens) - length + 1))
