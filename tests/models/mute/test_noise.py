"""Noise of the units' inputs: what is drawn against all outcomes and their probabilities; when it is drawn."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_depthwise.models.mute import noise as unit_noise
from fairseq_depthwise.models.mute.noise import RandomNumbers, TokenSpans, UnitInputs, disorder, identity, mask, swap

CPU = torch.device("cpu")

#: How often each kind of sentence is drawn.
COPIES = 20_000

#: (padding on the left, real tokens, padding on the right) of sentences that are one batch.
BATCHES = [
    [(0, 1, 0)],
    [(0, 2, 0), (1, 1, 0), (0, 1, 1), (2, 0, 0)],
    [(0, 3, 0), (1, 2, 0), (0, 2, 1), (2, 1, 0), (0, 1, 2)],
    [(0, 7, 0), (2, 5, 0), (0, 4, 3), (1, 4, 2), (4, 3, 0), (0, 3, 4), (5, 2, 0), (0, 1, 6), (7, 0, 0)],
]

#: What a sentence's positions read, and how probable that is.
Outcomes = dict[tuple[int, ...], float]


def padding_of(*sentences: tuple[int, int, int]) -> Tensor:
    """B x T."""
    return torch.tensor([[True] * left + [False] * real + [True] * right for left, real, right in sentences])


def draw(seed: int = 1) -> RandomNumbers:
    return RandomNumbers(torch.Generator().manual_seed(seed), CPU)


# --- all outcomes ----------------------------------------------------------------------------------------------------


def naive_swap(real: int) -> Iterator[tuple[dict[int, int], float]]:
    """What changes, and how probable that is: the first position is uniform, and so is its partner in reach."""
    for first in range(real):
        partners = [t for t in range(real) if 1 <= abs(t - first) <= 3]
        for second in partners:
            yield {first: second, second: first}, 1 / real / len(partners)
        if not partners:
            yield {}, 1 / real


def naive_disorder(real: int) -> Iterator[tuple[dict[int, int], float]]:
    """Three neighbors, or all of a shorter sentence, in any order."""
    width = min(real, 3)
    begins, orders = range(real - width + 1), list(itertools.permutations(range(width)))
    for begin in begins:
        for order in orders:
            changes = {begin + place: begin + old for place, old in enumerate(order)}
            yield changes, 1 / len(begins) / len(orders)


def naive_mask(real: int, number: int) -> Iterator[tuple[dict[int, int], float]]:
    """One position is masked."""
    for t in range(real):
        yield {t: number}, 1 / real
    if real == 0:
        yield {}, 1.0


def naive_masks(real: int, number: int, rate: float) -> Iterator[tuple[dict[int, int], float]]:
    """Every position is masked or not by itself."""
    for chosen in itertools.product([False, True], repeat=real):
        probability = math.prod(rate if one else 1 - rate for one in chosen)
        yield {t: number for t, one in enumerate(chosen) if one}, probability


def assert_distributed(rows: Tensor, left: int, length: int, changes: Iterator[tuple[dict[int, int], float]]) -> None:
    """Every row of ``rows`` (N x T) is an outcome, and each comes as often as it should, to 5 standard deviations.

    ``changes`` counts from the first real position; a number of T or more is the mask's. Whatever does not change, as
    padding never does, stays.
    """
    expected: Outcomes = defaultdict(float)
    for changed, probability in changes:
        outcome = list(range(length))
        for place, old in changed.items():
            outcome[left + place] = old if old >= length else left + old
        expected[tuple(outcome)] += probability
    assert sum(expected.values()) == pytest.approx(1)
    counts = Counter(map(tuple, rows.tolist()))
    assert set(counts) <= set(expected)
    for outcome, probability in expected.items():
        deviation = math.sqrt(len(rows) * probability * (1 - probability))
        assert abs(counts[outcome] - len(rows) * probability) <= 5 * deviation + 1e-6, outcome


#: Noise -> how it is drawn, and for a sentence of so many tokens in a batch that wide, all that it may change.
NOISES: dict[str, tuple[Callable[[TokenSpans, RandomNumbers], Tensor], Callable[[int, int], Iterator[Any]]]] = {
    "identity": (identity, lambda real, wide: iter([({}, 1.0)])),
    "swap": (swap, lambda real, wide: naive_swap(real) if real else iter([({}, 1.0)])),
    "disorder": (disorder, lambda real, wide: naive_disorder(real)),
    "one mask": (lambda sentences, random: mask(sentences, random, 0.0), naive_mask),
    "masks": (lambda sentences, random: mask(sentences, random, 0.4), lambda real, wide: naive_masks(real, wide, 0.4)),
}


@pytest.mark.parametrize("batch", BATCHES, ids=["1 wide", "2 wide", "3 wide", "7 wide"])
@pytest.mark.parametrize("name", NOISES)
def test_every_outcome_comes_as_often_as_it_should(name: str, batch: list[tuple[int, int, int]]) -> None:
    """For every kind of sentence of a mixed batch."""
    noise, changes = NOISES[name]
    padding = padding_of(*batch).repeat(COPIES, 1)
    rows = noise(TokenSpans(padding), draw())
    assert rows.shape == padding.shape
    for number, (left, real, right) in enumerate(batch):
        wide = left + real + right
        assert_distributed(rows[number :: len(batch)], left, wide, changes(real, wide))


# --- when it is drawn ------------------------------------------------------------------------------------------------


def build_inputs(*noises: str, noise_rate: float = 1.0, mask_rate: float = 0.0) -> UnitInputs:
    torch.manual_seed(1)
    return UnitInputs(noises=noises, embed_dim=4, noise_rate=noise_rate, rates_of_noises={"mask": mask_rate})


ALL_NOISES = ("identity", "swap", "mask", "disorder")


def rows_of(inputs: UnitInputs, seed: int, length: int = 9, batch: int = 5, padding: Tensor | None = None) -> Tensor:
    torch.manual_seed(seed)
    rows = inputs.draw(length, batch, padding, CPU)
    assert rows is not None
    return rows


@pytest.mark.parametrize("noise_rate", [0.85, 0.3])
def test_noise_is_on_as_often_as_the_rate_says(noise_rate: float) -> None:
    inputs = build_inputs(*ALL_NOISES, noise_rate=noise_rate)
    times = 400
    on = sum(inputs.draw(3, 1, None, CPU) is not None for _ in range(times))
    assert abs(on / times - noise_rate) < 5 * math.sqrt(noise_rate * (1 - noise_rate) / times)


def test_it_is_on_for_all_units_or_for_none_and_each_draws_its_own() -> None:
    inputs = build_inputs("mask", "mask", "mask", noise_rate=0.5)
    found = [inputs.draw(30, 4, None, CPU) for _ in range(50)]
    on = [rows for rows in found if rows is not None]
    assert 0 < len(on) < 50
    for rows in on:
        assert rows.shape == (3, 30, 4)
        assert torch.equal((rows == 30).sum(1), torch.ones(3, 4, dtype=torch.long))
        assert not torch.equal(rows[0], rows[1])


def test_each_unit_has_its_noise() -> None:
    rows = rows_of(build_inputs(*ALL_NOISES), seed=1, length=30, batch=40)
    here = torch.arange(30)[:, None].expand(30, 40)
    changed = (rows != here).sum(1)
    assert not changed[0].any()
    assert (changed[1] == 2).all()
    assert torch.equal(rows[2] == 30, rows[2] != here)
    assert (changed[2] == 1).all()
    assert set(changed[3].tolist()) == {0, 2, 3}


def test_the_seed_and_the_rank_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = build_inputs(*ALL_NOISES)
    first = rows_of(inputs, seed=1)
    assert torch.equal(rows_of(inputs, seed=1), first)
    assert not torch.equal(rows_of(inputs, seed=2), first)
    monkeypatch.setattr(unit_noise, "_rank", lambda: 1)
    other = rows_of(inputs, seed=1)
    assert not torch.equal(other, first)
    assert torch.equal(rows_of(inputs, seed=1), other)


def test_ranks_take_as_much_from_torchs_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the noise is on or off: what is drawn after it is alike in all processes."""
    inputs = build_inputs(*ALL_NOISES, noise_rate=0.5)
    after = set()
    on = set()
    for rank in range(10):
        monkeypatch.setattr(unit_noise, "_rank", lambda rank=rank: rank)
        torch.manual_seed(1)
        on.add(inputs.draw(9, 5, None, CPU) is not None)
        after.add(float(torch.rand(())))
    assert on == {False, True}
    assert len(after) == 1
