"""Biased inputs: the noise that each unit's input gets in training.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 3.2. Each sentence has one swap, shuffle or
mask (with a mask rate, any number), never of padding.

A noise is drawn for the whole batch at once, as an index tensor ``sources`` (B x T): position t of sentence b takes the
vector of position ``sources[b, t]``. Swapping the first two tokens of "a b c" is the row ``1 0 2``.

The authors' program draws positions from the padded length, so it swaps tokens with padding, and its ranges stop
one position short. Here every draw is uniform over the tokens of the sentence, without padding.

To add a noise, write a function of :class:`TokenSpans` and :class:`RandomNumbers`, and add it to ``NOISES``. If it has
a rate, name there the option of ``MuteTransformerConfig`` that sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Greatest distance of two swapped positions, and number of neighbors that are shuffled (Section 3.2).
RANGE = 3


class TokenSpans:
    """Where each sentence's non-padding tokens are: ``lengths[b]`` positions from ``first[b]`` on."""

    def __init__(self, padding: Tensor) -> None:
        self.padding = padding
        self.lengths = padding.logical_not().sum(dim=1)
        # fairseq may pad on the left, so the first token of a sentence need not be at position 0. A sentence of nothing
        # but padding begins at the last position.
        last = padding.size(1) - 1
        positions = torch.arange(last + 1, device=padding.device)
        self.first = torch.where(padding, last, positions).amin(dim=1)

    def identity_indices(self) -> Tensor:
        """Return sources, B x T, that change nothing: every position takes its own vector."""
        return torch.arange(self.padding.size(1), device=self.padding.device).expand(self.padding.shape)


class RandomNumbers:
    """Random numbers from a generator on the CPU, so that they are the same on every device."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self._generator = generator
        self._device = device

    def fractions(self, *shape: int) -> Tensor:
        """Draw numbers uniform in [0, 1)."""
        return torch.rand(*shape, generator=self._generator, dtype=torch.float64).to(self._device, non_blocking=True)

    def integers_below(self, limits: Tensor) -> Tensor:
        """Draw B integers, each uniform in 0 to n - 1; 0 where n is 0 or less."""
        return (self.fractions(len(limits)) * limits).long().clamp(min=0)


def identity(sentences: TokenSpans, random: RandomNumbers) -> Tensor:
    """Return sources, B x T, that change nothing."""
    return sentences.identity_indices()


def swap(sentences: TokenSpans, random: RandomNumbers) -> Tensor:
    """Swap two positions, at most ``RANGE`` apart; a sentence of one token stays as it is. Return sources, B x T.

    The first position is uniform over the sentence, the second over all others within reach of the first.
    """
    # i and j count from the sentence's first token.
    i = random.integers_below(sentences.lengths)
    low = (i - RANGE).clamp(min=0)
    high = torch.minimum(i + RANGE, sentences.lengths - 1)

    # j differs from i: draw from one number fewer, and skip over i.
    j = low + random.integers_below(high - low)
    j = torch.where(high > low, j + (j >= i), i)

    pair = torch.stack([i, j], dim=1) + sentences.first[:, None]  # B x 2
    return sentences.identity_indices().scatter(1, pair, pair.flip(1))


def disorder(sentences: TokenSpans, random: RandomNumbers) -> Tensor:
    """Shuffle ``RANGE`` neighbors; all orders, the old one included, are equally probable. Return sources, B x T.

    The position of the first neighbor is uniform; a shorter sentence is shuffled as a whole.
    """
    width = sentences.lengths.clamp(max=RANGE)
    begin = sentences.first + random.integers_below(sentences.lengths - width + 1)
    steps = torch.arange(RANGE, device=begin.device)
    outside = steps >= width[:, None]  # B x RANGE

    # Sorting random keys shuffles. Beyond the end of a short sentence keys are larger than all random ones, so that
    # these positions stay at their place.
    keys = torch.where(outside, 1.0 + steps, random.fractions(len(begin), RANGE))
    order = torch.where(outside, steps, keys.argsort(dim=1))

    # A short sentence's unused places may lie beyond T: append RANGE scratch columns, which are cut off below.
    places = begin[:, None] + steps
    sources = F.pad(sentences.identity_indices(), (0, RANGE))
    sources = sources.scatter(1, places, begin[:, None] + order)
    return sources[:, : sentences.padding.size(1)]


def mask(sentences: TokenSpans, random: RandomNumbers, rate: float) -> Tensor:
    """Mask positions: they take the mask vector, whose index is T. Return sources, B x T.

    With rate 0 one position of each sentence is masked (the paper); otherwise each token with this probability
    (the authors' program, 0.1).
    """
    length = sentences.padding.size(1)
    sources = sentences.identity_indices()
    if rate > 0:
        masked = random.fractions(*sentences.padding.shape) < rate
        return sources.masked_fill(masked & ~sentences.padding, length)

    place = (sentences.first + random.integers_below(sentences.lengths))[:, None]  # B x 1
    # A sentence without tokens has nothing to mask.
    source = torch.where(sentences.lengths[:, None] > 0, length, sources.gather(1, place))
    return sources.scatter(1, place, source)


class Noise(NamedTuple):
    """One choice of ``--unit-inputs``.

    Attributes:
        draw: function (sentences, random[, rate]) that returns the sources, B x T.
        rate_option: the field of ``MuteTransformerConfig`` with the rate; None for a noise without one.
        masks: whether the sources may be T, the index of a learned vector.
    """

    draw: Callable[..., Tensor]
    rate_option: str | None = None
    masks: bool = False


#: The names of ``--unit-inputs``.
NOISES = {
    "identity": Noise(identity),
    "swap": Noise(swap),
    "mask": Noise(mask, rate_option="unit_mask_rate", masks=True),
    "disorder": Noise(disorder),
}


class UnitInputs(nn.Module):
    """The inputs of a layer's units, Equation 11, with the switch of Section 3.2.

    Args:
        noises: a name of ``NOISES`` for each unit.
        noise_rate: probability that a training forward has noise; one draw for the whole layer.
        rates_of_noises: name of a noise -> its rate; 0 by default.
    """

    def __init__(
        self,
        *,
        noises: Sequence[str],
        embed_dim: int,
        noise_rate: float,
        rates_of_noises: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.noises = tuple(noises)
        self.noise_rate = noise_rate
        self.rates_of_noises = dict(rates_of_noises or {})
        #: What a masked position reads; one vector for the layer.
        self.mask_vector: nn.Parameter | None = None
        if any(NOISES[name].masks for name in noises):
            self.mask_vector = nn.Parameter(torch.empty(embed_dim))
            nn.init.normal_(self.mask_vector, std=embed_dim**-0.5)

    def draw(self, length: int, batch: int, padding: Tensor | None, device: torch.device) -> Tensor | None:
        """Draw the sources of each unit, U x T x B; return None for no noise.

        Nothing is drawn in evaluation. ``padding``: B x T, True at padding.
        """
        if not self.training or not self.noise_rate or set(self.noises) == {"identity"}:
            return None

        # fairseq seeds torch identically in all processes at each update; add the rank so that their noise differs.
        generator = torch.Generator()
        generator.manual_seed(int(torch.randint(2**31, ())) + _rank())
        is_on = float(torch.rand((), generator=generator)) < self.noise_rate
        if not is_on:
            return None

        if padding is None:
            padding = torch.zeros(batch, length, dtype=torch.bool, device=device)
        sentences = TokenSpans(padding)
        random = RandomNumbers(generator, device)
        sources = []
        for name in self.noises:
            noise = NOISES[name]
            if noise.rate_option is None:
                sources.append(noise.draw(sentences, random))
            else:
                sources.append(noise.draw(sentences, random, self.rates_of_noises.get(name, 0.0)))
        return torch.stack(sources).transpose(1, 2)

    def forward(self, values: Tensor, sources: Tensor | None) -> Tensor:
        """Compute U x T x B x d from T x B x d, with U = 1 where all units read the same."""
        if sources is None:
            # PyTorch's data parallel wrapper wants to see every parameter in every forward of training.
            unused = self.mask_vector.sum() * 0 if self.training and self.mask_vector is not None else 0
            return (values + unused).unsqueeze(0)

        # The mask vector is one more position, T, of every sentence: (T + 1) x B x d.
        if self.mask_vector is not None:
            masked = self.mask_vector.to(values.dtype).expand(1, values.size(1), -1)
            values = torch.cat([values, masked])

        # Selecting from one list of T B vectors has a cheaper backward pass than indexing with two numbers.
        batch = sources.size(2)
        places = sources * batch + torch.arange(batch, device=sources.device)
        return values.flatten(0, 1).index_select(0, places.flatten()).view(*sources.shape, values.size(2))


def _rank() -> int:
    """Return this process's number among those that train together."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
