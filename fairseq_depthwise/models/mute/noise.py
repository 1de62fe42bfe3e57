"""Biased inputs: the noise that each unit's input gets in training.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 3.2. Each noise changes a sentence once and
never its padding. What is drawn is, for every position, the position whose row it takes; nothing loops over sentences.

The authors' program draws positions from the padded length, so that it swaps real tokens with padding, and its ranges
lack an end; here every draw is uniform over what the sentence has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Swapped positions are at most so far apart, and so many neighbors are disordered (Section 3.2).
RANGE = 3


class Sentences:
    """Where the real tokens of a batch are: ``lengths`` (B) from position ``first`` (B) on."""

    def __init__(self, padding: Tensor) -> None:
        self.padding = padding
        self.lengths = padding.logical_not().sum(dim=1)
        last = padding.size(1) - 1
        self.first = torch.where(padding, last, torch.arange(last + 1, device=padding.device)).amin(dim=1)

    def in_order(self) -> Tensor:
        """Return rows B x T: every position takes its own."""
        return torch.arange(self.padding.size(1), device=self.padding.device).expand(self.padding.shape)


class Draw:
    """Random numbers from a generator on the CPU, so that they are the same on every device."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self._generator = generator
        self._device = device

    def fractions(self, *shape: int) -> Tensor:
        """Draw numbers uniform in [0, 1)."""
        return torch.rand(*shape, generator=self._generator, dtype=torch.float64).to(self._device, non_blocking=True)

    def below(self, numbers: Tensor) -> Tensor:
        """Draw B integers, each uniform in 0 to n - 1; 0 where n is 0 or less."""
        return (self.fractions(len(numbers)) * numbers).long().clamp(min=0)


def swap(sentences: Sentences, draw: Draw) -> Tensor:
    """Let two positions, at most ``RANGE`` apart, take each other's rows; nothing in a sentence of one token.

    The first is uniform over the sentence, the second over those in reach of it. Returns rows, B x T.
    """
    first = draw.below(sentences.lengths)
    low = (first - RANGE).clamp(min=0)
    high = torch.minimum(first + RANGE, sentences.lengths - 1)
    second = low + draw.below(high - low)
    second = torch.where(high > low, second + (second >= first), first)
    pair = torch.stack([first, second], dim=1) + sentences.first[:, None]
    return sentences.in_order().scatter(1, pair, pair.flip(1))


def disorder(sentences: Sentences, draw: Draw) -> Tensor:
    """Let ``RANGE`` neighbors take each other's rows in an order that is uniform over all, the old one among them.

    Where they begin is uniform; a shorter sentence is disordered as a whole. Returns rows, B x T.
    """
    width = sentences.lengths.clamp(max=RANGE)
    begin = sentences.first + draw.below(sentences.lengths - width + 1)
    steps = torch.arange(RANGE, device=begin.device)
    outside = steps >= width[:, None]
    keys = torch.where(outside, 1.0 + steps, draw.fractions(len(begin), RANGE))
    # Beyond the end of a short sentence everything stays, and may be written to the first position's place only.
    order = torch.where(outside, steps, keys.argsort(dim=1))
    places = begin[:, None] + steps
    rows = F.pad(sentences.in_order(), (0, RANGE))
    return rows.scatter(1, places, begin[:, None] + order)[:, : sentences.padding.size(1)]


def mask(sentences: Sentences, draw: Draw, rate: float) -> Tensor:
    """Let positions take the mask's row, whose number is T. Returns rows, B x T.

    With rate 0 it masks one position of each sentence (the paper); otherwise each real position with this probability
    (the authors' program, 0.1).
    """
    length = sentences.padding.size(1)
    rows = sentences.in_order()
    if rate > 0:
        chosen = draw.fractions(*sentences.padding.shape) < rate
        return rows.masked_fill(chosen & ~sentences.padding, length)
    place = (sentences.first + draw.below(sentences.lengths))[:, None]
    return rows.scatter(1, place, torch.where(sentences.lengths[:, None] > 0, length, rows.gather(1, place)))


def identity(sentences: Sentences, draw: Draw) -> Tensor:
    """Return rows B x T that change nothing."""
    return sentences.in_order()


#: Names of ``--unit-inputs``; ``mask`` has a rate besides.
NOISES: dict[str, Callable[..., Tensor]] = {"identity": identity, "swap": swap, "mask": mask, "disorder": disorder}


class UnitInputs(nn.Module):
    """The inputs of a layer's units, Equation 11, with the switch of Section 3.2.

    ``noises``: a name in ``NOISES`` for each unit; ``noise_rate``: probability that a training forward has the noise,
    one draw for the layer; ``mask_rate``: see :func:`mask`.
    """

    def __init__(self, *, noises: Sequence[str], embed_dim: int, noise_rate: float, mask_rate: float = 0.0) -> None:
        super().__init__()
        self.noises = tuple(noises)
        self.noise_rate = noise_rate
        self.mask_rate = mask_rate
        #: What a masked position reads; one vector for the layer.
        self.mask_vector = nn.Parameter(torch.empty(embed_dim)) if "mask" in noises else None
        if self.mask_vector is not None:
            nn.init.normal_(self.mask_vector, std=embed_dim**-0.5)

    def draw(self, length: int, batch: int, padding: Tensor | None, device: torch.device) -> Tensor | None:
        """Draw the rows that each position of each unit takes, U x T x B; return None for no noise.

        A seed comes from torch's generator, which fairseq seeds for every update, alike in all processes; the rank is
        added. Nothing is drawn in evaluation.
        """
        if not self.training or not self.noise_rate or set(self.noises) == {"identity"}:
            return None
        generator = torch.Generator()
        generator.manual_seed(int(torch.randint(2**31, ())) + _rank())
        if float(torch.rand((), generator=generator)) >= self.noise_rate:
            return None
        if padding is None:
            padding = torch.zeros(batch, length, dtype=torch.bool, device=device)
        sentences, draw = Sentences(padding), Draw(generator, device)
        rows = [
            mask(sentences, draw, self.mask_rate) if name == "mask" else NOISES[name](sentences, draw)
            for name in self.noises
        ]
        return torch.stack(rows).transpose(1, 2)

    def forward(self, values: Tensor, rows: Tensor | None) -> Tensor:
        """Compute U x T x B x d from T x B x d, with U = 1 where all units read the same."""
        if rows is None:
            # PyTorch's data parallel wrapper wants to see every parameter in every forward of training.
            unused = self.mask_vector.sum() * 0 if self.training and self.mask_vector is not None else 0
            return (values + unused).unsqueeze(0)
        if self.mask_vector is not None:
            last = self.mask_vector.to(values.dtype).expand(1, values.size(1), -1)
            values = torch.cat([values, last])
        # T x B rows in one list; selecting from it has a cheaper backward pass than indexing with two numbers.
        places = rows * rows.size(2) + torch.arange(rows.size(2), device=rows.device)
        return values.flatten(0, 1).index_select(0, places.flatten()).view(*rows.shape, values.size(2))


def _rank() -> int:
    """Return this process's number among those that train together."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
