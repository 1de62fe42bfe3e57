"""``--growth-stages``: every form, the stage of every epoch and update, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import STRATEGIES
from fairseq_depthwise.growth.stages import GrowthPlan, Stage, parse_stages


def plan_of(text: str, **options: Any) -> GrowthPlan:
    return parse_stages(text, **{"strategy": "top-most", **options})


# --- every form ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stages", "in_updates", "length"),
    [
        ("6:2", [Stage(6, 2)], False, 2),
        ("6:", [Stage(6, None)], False, None),
        ("6:2,12:3", [Stage(6, 2), Stage(12, 3)], False, 5),
        ("6:2,12:2,18:", [Stage(6, 2), Stage(12, 2), Stage(18, None)], False, None),
        (" 6:2 , 12:2 ", [Stage(6, 2), Stage(12, 2)], False, 4),
        ("6:5000u", [Stage(6, 5000)], True, 5000),
        ("6:u", [Stage(6, None)], True, None),
        ("6:5000u,12:7000u", [Stage(6, 5000), Stage(12, 7000)], True, 12000),
        ("6:5000u,12:", [Stage(6, 5000), Stage(12, None)], True, None),
        ("6:5000u,12:u", [Stage(6, 5000), Stage(12, None)], True, None),
        ("6:2@4096x2", [Stage(6, 2, 4096, 2)], False, 2),
        ("6:2@4096x2,12:1", [Stage(6, 2, 4096, 2), Stage(12, 1)], False, 3),
        ("6:2,12:1@2048x4,18:@1024x8", [Stage(6, 2), Stage(12, 1, 2048, 4), Stage(18, None, 1024, 8)], False, None),
    ],
)
def test_every_form(text: str, stages: list[Stage], in_updates: bool, length: int | None) -> None:
    plan = plan_of(text)
    assert plan == GrowthPlan(text, tuple(stages), in_updates)
    assert plan.length == length
    assert plan.depths == tuple(stage.layers for stage in stages)


# --- which stage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The stage of number 1, 2, 3, ...
        ("6:", [0, 0, 0, 0]),
        ("6:2", [0, 0, 0, 0]),  # the last stage goes on beyond its length
        ("6:1,12:", [0, 1, 1, 1]),
        ("6:2,12:1,18:2", [0, 0, 1, 2, 2, 2, 2]),
        ("6:1,12:1,18:1,24:", [0, 1, 2, 3, 3]),
        ("6:3u,12:2u,18:", [0, 0, 0, 1, 1, 2, 2, 2]),
    ],
)
def test_the_stage_of_every_epoch_or_update(text: str, expected: list[int]) -> None:
    plan = plan_of(text)
    assert [plan.stage_of(number) for number in range(1, len(expected) + 1)] == expected
    assert plan.stage_of(0) == 0
    assert plan.stage_of(10**9) == expected[-1]


def test_the_stage_with_a_depth() -> None:
    plan = plan_of("6:2,12:2,18:")
    assert [plan.stage_with(layers) for layers in (6, 12, 18, 7, 24, 0)] == [0, 1, 2, None, None, None]


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "otherwise", "expected"),
    [
        ("6:2,12:", [4], None),
        ("6:2u,12:", [4], None),
        ("6:2@100x2", [1], [2]),  # one stage: the same in all epochs
        ("6:2@100x2,12:", [1], [2, 2, 1]),
        ("6:2,12:@100x3", [1], [1, 1, 3]),
        ("6:2@100x2,12:1@100x5,18:@100x7", [1], [2, 2, 5, 7]),
        # The option's own list, by epoch, holds where a stage says nothing.
        ("6:2@100x2,12:", [1, 3, 5, 6], [2, 2, 5, 6]),
        ("6:1,12:2@100x9,18:", [1, 3, 5], [1, 9, 9, 5]),
        ("6:1,12:2@100x9,18:", [1, 2, 3, 4, 5, 6], [1, 9, 9, 4, 5, 6]),
    ],
)
def test_the_update_frequency_of_every_epoch(text: str, otherwise: list[int], expected: list[int] | None) -> None:
    assert plan_of(text).update_freqs(otherwise) == expected


def test_fairseq_reads_the_frequencies_as_meant() -> None:
    """fairseq takes entry e for epoch e, and the last one ever after."""
    plan = plan_of("1:3@100x2,2:2,3:4@50x5,4:@50x6")
    frequencies = plan.update_freqs([7, 8])
    assert frequencies is not None
    read = [frequencies[min(epoch, len(frequencies)) - 1] for epoch in range(1, 14)]
    assert read == [2, 2, 2, 8, 8, 5, 5, 5, 5, 6, 6, 6, 6]


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "6", "6:2,", ",6:2", "6:2,,12:2", ":2", "6:two", "six:2", "6:-2", "-6:2", "6:2.5", "6:1e3", "6:2x",
        "6:2 u", "6 :2", "6:2U", "6:2@4096", "6:2@x2", "6:2@4096x", "6:2@4096X2", "6:2@4096x2x3", "6:2@4096x-1",
        "6-2", "6:2;12:2", "6:2 12:2", "[6:2]", "6:2:3", "6:+2",
    ],
)  # fmt: skip
def test_what_is_no_list_of_stages(text: str) -> None:
    with pytest.raises(UserError) as error:
        plan_of(text)
    assert str(error.value).startswith(f"--growth-stages {text}: ")


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("6:2,twelve:2", {}, "'twelve:2'"),
        ("6:,12:2", {}, "'6:' .* '12:2'"),
        ("6:u,12:2u", {}, "'6:u' .* '12:2u'"),
        ("6:2,12:@9x1,18:", {}, "'12:@9x1' .* '18:'"),
        ("6:0,12:", {}, "'6:0'"),
        ("6:2,12:0u", {}, "'12:0u'"),
        ("6:2@0x2", {}, "'6:2@0x2'"),
        ("6:2@9x0", {}, "'6:2@9x0'"),
        *((text, {}, "epochs and some updates") for text in ("6:2,12:500u", "6:2,12:u", "6:2u,12:5")),
        *((text, {}, "stage in updates") for text in ("6:500u@4096x2", "6:500u,12:@4096x2")),
        ("0:2", {}, "first stage has no layers"),
        ("0:2,6:2", {"block_size": 6}, "first stage has no layers"),
        ("12:2,6:", {}, "12 layers .* to 6"),
        ("6:2,6:2", {}, "6 layers .* to 6"),
        ("2:2,4:2,9:", {"strategy": "interpolation"}, "interpolation .* 4 layers .* to 9"),
        ("6:2,12:", {"strategy": "all"}, "strategy all"),
        ("4:2,6:", {"block_size": 6}, "4 layers.* blocks of 6"),
        ("6:2,9:", {"block_size": 6}, "6 layers .* to 9: .* blocks of 6"),
    ],
)
def test_what_is_refused(text: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"--growth-stages {text}: .*{named}"):
        plan_of(text, **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block_size", [0, 1])
def test_every_strategy_takes_steps_it_can(strategy: str, block_size: int) -> None:
    depths = (2, 4, 12) if strategy == "stack" else (3, 4, 8)
    text = ":1,".join(map(str, depths)) + ":"
    assert plan_of(text, strategy=strategy, block_size=block_size).depths == depths
    if strategy in ("top", "stack", "random"):
        assert plan_of("1:1,9:", strategy=strategy, block_size=block_size).depths == (1, 9)
