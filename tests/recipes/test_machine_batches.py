"""A paper's batch on any machine: never smaller, hardly larger, and within what fits."""

from __future__ import annotations

import math
import random

import pytest
from machine_batches import FEWEST_TOKENS, batch, growth_stages
from systems import Stage

from fairseq_compat import UserError
from fairseq_depthwise.growth.stages import parse_stages


@pytest.mark.parametrize("tokens", [4096, 25_000, 32_768, 65_536, 458_752])
def test_product(tokens: int) -> None:
    chance = random.Random(tokens)
    tried = 0
    for _ in range(2000):
        processes = chance.randint(1, min(130, tokens // FEWEST_TOKENS + 3))
        most = chance.choice([chance.randint(300, 20_000), 2 ** chance.randint(9, 15)])
        try:
            size = batch(tokens, processes, most)
        except UserError:
            continue
        tried += 1
        product = size.max_tokens * size.update_freq * processes
        assert tokens <= product < tokens + size.update_freq * processes
        assert FEWEST_TOKENS <= size.max_tokens <= most
        assert size.update_freq == 1 or (size.update_freq - 1) * processes * most < tokens, "fewer steps would do"
    assert tried > 500


def test_published_batches() -> None:
    assert batch(25_000, 1, 25_000) == (25_000, 1)
    assert batch(25_000, 2, 12_500) == (12_500, 1)
    assert batch(25_000, 1, 12_500) == (12_500, 2)
    assert batch(32_768, 8, 4096) == (4096, 1)
    assert batch(32_768, 3, 4096) == (3641, 3)


@pytest.mark.parametrize("tokens", [300, 4096, 25_000])
def test_too_many_processes(tokens: int) -> None:
    """The number that the error names is the largest that is taken."""
    most = tokens // FEWEST_TOKENS
    assert batch(tokens, most, 4096).max_tokens >= FEWEST_TOKENS
    refused = next(number for number in range(most, most + 9) if math.ceil(tokens / number) < FEWEST_TOKENS)
    with pytest.raises(UserError) as error:
        batch(tokens, refused, 4096)
    assert f"an update has {tokens:,} tokens, and {refused} processes" in str(error.value)
    assert f"use at most {most} processes" in str(error.value)


def test_too_little_memory() -> None:
    with pytest.raises(UserError, match="MAX_TOKENS of at least 300"):
        batch(25_000, 1, 200)


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("most", [2048, 8192])
def test_stages_are_those_that_the_task_reads(processes: int, most: int) -> None:
    stages = [Stage(6, 2), Stage(12, 3, 0.7), Stage(18, None, 0.5)]
    plan = parse_stages(growth_stages(stages, 32_768, processes, most), strategy="top-most")
    assert [(stage.layers, stage.length) for stage in plan.stages] == [(6, 2), (12, 3), (18, None)]
    for stage, read in zip(stages, plan.stages, strict=True):
        assert read.max_tokens is not None
        assert read.update_freq is not None
        assert read.max_tokens <= most * stage.share
        assert 32_768 <= read.max_tokens * read.update_freq * processes < 32_768 + read.update_freq * processes
