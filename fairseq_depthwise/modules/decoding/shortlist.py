"""A short list of target tokens that a batch's translations are made of, in the place of the whole vocabulary.

It has the tokens that are most probable given any of the source's, by a lexical table: a text file with a target token,
a source token and P(target | source) in each line, as Marian and fast_align write them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_compat import UserError

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
        with open(path, encoding="utf-8") as lines:
            rows = [line.split() for line in lines]
        try:
            found = [(float(p), source.indices.get(s), target.indices.get(t)) for t, s, p in rows]
        except ValueError as error:
            raise UserError(f"{path} is no lexical table: a line is not a target, a source and a number") from error
        known = [row for row in found if None not in row]
        if len(known) <= len(rows) / 2:
            raise UserError(f"{path} is of other dictionaries: {len(known)} of {len(rows)} lines have tokens of these")
        sums: defaultdict[int, float] = defaultdict(float)
        for probability, given, _ in known:
            sums[given] += probability
        if not all(0 <= one < 1.01 for one in sums.values()):
            raise UserError(f"{path}: probabilities given a source add up to more than 1; swap its first two columns?")
        self.tokens = torch.zeros(len(source), _KNOWN, dtype=torch.long)
        self.probabilities = torch.zeros(len(source), _KNOWN)
        ranks: Counter[int] = Counter()
        for probability, given, token in sorted(known, reverse=True):
            if ranks[given] < _KNOWN:
                self.tokens[given, ranks[given]], self.probabilities[given, ranks[given]] = token, probability
                ranks[given] += 1

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
    order = np.lexsort((-probability, source_tokens))
    first = np.searchsorted(source_tokens[order], source_tokens[order])
    for number in order[np.arange(len(order)) - first < _KNOWN]:
        yield int(both[number] & 0xFFFFFFFF), int(source_tokens[number]), float(probability[number])
