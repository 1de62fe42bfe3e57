"""A short list of target tokens that a batch's translations are made of, in the place of the whole vocabulary.

It has the tokens that are most probable given any of the source's, by a lexical table: a text file with a target token,
a source token and P(target | source) in each line, as Marian reads it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.text_files import lines_of

#: Of each source token, so many target tokens are known.
_KNOWN = 100


class Shortlist:
    """Choose ``size`` tokens for each batch, of which the end and unknown words always are.

    Args:
        path: the lexical table.
        models: whose probabilities are averaged; they have dictionaries and output projections.
        size: of the vocabulary, if it is larger. A multiple of 128 is fastest.
    """

    def __init__(self, path: str, models: Sequence[Any], size: int) -> None:
        source, target = models[0].encoder.dictionary, models[0].decoder.dictionary
        self.models, self.size = models, min(size, len(target))
        self.special, self.vocabulary = target.nspecial, len(target)
        numbers, given, tokens, others = array("d"), array("q"), array("q"), 0
        for number, line in enumerate(lines_of(path), start=1):
            if not line.strip():
                continue
            try:
                token, token_given, text = line.split()
                if not 0 <= (probability := float(text)) <= 1:
                    raise ValueError
            except ValueError:
                raise UserError(
                    f"{path}, line {number} is {line[:80]!r}; it must be a target token, a source token and a "
                    "probability from 0 to 1, which is no logarithm"
                ) from None
            if token_given in source.indices and token in target.indices:
                numbers.append(probability)
                given.append(source.indices[token_given])
                tokens.append(target.indices[token])
            else:
                others += 1
        if len(numbers) <= others:
            raise UserError(
                f"{path} is empty or of other dictionaries: {len(numbers)} of its {len(numbers) + others} lines have "
                "tokens of these"
            )
        if np.bincount(given, numbers).max() > 1.01:
            raise UserError(
                f"{path}: probabilities given a source token add up to more than 1; are the first two columns swapped, "
                "or lines there twice?"
            )
        self.tokens = torch.zeros(len(source), _KNOWN, dtype=torch.long)
        self.probabilities = torch.zeros(len(source), _KNOWN)
        chosen, rank = _best(np.asarray(numbers), np.asarray(given))
        places = np.asarray(given)[chosen], rank
        self.tokens[places] = torch.from_numpy(np.asarray(tokens)[chosen])
        self.probabilities[places] = torch.from_numpy(np.asarray(numbers)[chosen]).float()

    def __call__(self, source_tokens: Tensor, always: Sequence[int] = ()) -> list[Tensor]:
        """Source tokens (B x S) to N tokens in order, with those of ``always``, and each model's part of its table.

        These are C x N, each column a token's.
        """
        found = source_tokens.unique()
        # Of those that are not known of any token the most frequent ones, with which a dictionary begins.
        score = -torch.arange(self.vocabulary, dtype=torch.float)
        score.scatter_reduce_(0, self.tokens[found].flatten(), self.probabilities[found].flatten(), "amax")
        score[: self.special] = score[list(always)] = torch.inf
        words = score.topk(self.size).indices.sort().values
        return [words, *(model.decoder.output_projection.weight[words].t().contiguous() for model in self.models)]


def lexical_table(pairs: Iterable[tuple[Tensor, Tensor]], rounds: int = 4) -> Iterator[tuple[int, int, float]]:
    """Yield target, source and P(target | source), the most probable of each source token, from pairs of sentences.

    This is model 1 of Brown et al. (1993); the end of the source is its empty word, and a token that stands there twice
    counts once. Memory is about 40 bytes for each source token times each target token of a pair.
    """
    keys, places, count = [], [], 0
    for source, target in pairs:
        ours, theirs = source.unique().numpy(), target[:-1].numpy()
        keys.append((ours[:, None] << 32 | theirs).ravel())
        places.append(np.tile(np.arange(count, count + len(theirs)), len(ours)))
        count += len(theirs)
    both, of_pair = np.unique(np.concatenate(keys), return_inverse=True)
    place, source_tokens = np.concatenate(places), both >> 32
    probability = np.ones(len(both))
    for _ in range(rounds):
        part = probability[of_pair]
        part /= np.bincount(place, part)[place]
        expected = np.bincount(of_pair, part)
        probability = expected / np.bincount(source_tokens, expected)[source_tokens]
    for number in _best(probability, source_tokens)[0]:
        yield int(both[number] & 0xFFFFFFFF), int(source_tokens[number]), float(probability[number])


def _best(probability: Any, given: Any) -> tuple[Any, Any]:
    """Return which entries are the most probable of each source token, and their ranks there from 0."""
    order = np.lexsort((-probability, given))
    rank = np.arange(len(order)) - np.searchsorted(given[order], given[order])
    return order[rank < _KNOWN], rank[rank < _KNOWN]
