"""``--growth-stages``: every form, the stage of every epoch and update, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.growth.stages import GrowthPlan, Stage, parse_stages


def plan_of(text: str, **options: Any) -> GrowthPlan:
    return parse_stages(text, **{"strategy": "top-most", **options})


@pytest.mark.parametrize(
    ("text", "stages", "in_updates", "length", "places"),
    [
        # ``places``: the stage of epoch or update 1, 2, 3, ...; the last stage goes on beyond its length.
        ("6:2", [Stage(6, 2)], False, 2, [0, 0, 0, 0]),
        (" 6:1 , 12:2,18:", [Stage(6, 1), Stage(12, 2), Stage(18, None)], False, None, [0, 1, 1, 2, 2]),
        ("6:u", [Stage(6, None)], True, None, [0, 0]),
        ("6:3u,12:2u", [Stage(6, 3), Stage(12, 2)], True, 5, [0, 0, 0, 1, 1, 1]),
        ("6:3u,12:", [Stage(6, 3), Stage(12, None)], True, None, [0, 0, 0, 1, 1]),
        ("6:1@4096x2,12:1", [Stage(6, 1, 4096, 2), Stage(12, 1)], False, 2, [0, 1, 1]),
        ("6:1,12:@1024x8", [Stage(6, 1), Stage(12, None, 1024, 8)], False, None, [0, 1, 1]),
    ],
)
def test_every_form(text: str, stages: list[Stage], in_updates: bool, length: int | None, places: list[int]) -> None:
    plan = plan_of(text)
    assert plan == GrowthPlan(text, tuple(stages), in_updates)
    assert plan.length == length
    assert [plan.stage_of(number) for number in range(1, len(places) + 1)] == places
    assert [plan.stage_with(layers) for layers in (*plan.depths, 7)] == [*range(len(stages)), None]


@pytest.mark.parametrize(
    ("text", "otherwise", "expected"),
    [
        ("6:2,12:", [4], None),
        ("6:2@100x2", [1], [2]),  # one stage: the same in all epochs
        ("6:2@100x2,12:1@100x5,18:@100x7", [1], [2, 2, 5, 7]),
        # The option's own list, by epoch, holds where a stage says nothing.
        ("6:2@100x2,12:", [1, 3, 5, 6], [2, 2, 5, 6]),
        ("6:1,12:2@100x9,18:", [1, 3, 5], [1, 9, 9, 5]),
        ("1:3@100x2,2:2,3:4@50x5,4:@50x6", [7, 8], [2, 2, 2, 8, 8, 5, 5, 5, 5, 6]),
    ],
)
def test_the_update_frequency_of_every_epoch(text: str, otherwise: list[int], expected: list[int] | None) -> None:
    """fairseq takes entry e for epoch e, and the last one ever after."""
    assert plan_of(text).update_freqs(otherwise) == expected


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        *((text, {}, "'.*' is not a stage") for text in ("", "6", "6:2,twelve:2", "6:2,,12:2", "6:0,12:", "0:2")),
        *((text, {}, "'.*' is not a stage") for text in ("6:2.5", "6:2x", "6:2@4096", "6:2@0x2", "6:2;12:2")),
        ("6:,12:2", {}, "'12:2' would never begin"),
        ("6:2,12:@9x1,18:", {}, "'18:' would never begin"),
        *((text, {}, "epochs and some updates") for text in ("6:2,12:500u", "6:2u,12:5")),
        ("6:500u,12:@4096x2", {}, "stage in updates"),
        ("12:2,6:", {}, "12 layers .* to 6"),
        ("2:2,4:2,9:", {"strategy": "interpolation"}, "4 layers .* to 9.* interpolation"),
        ("4:2,6:", {"block_size": 6}, "4 layers are no blocks of 6"),
        ("6:2,9:", {"block_size": 6}, "6 layers .* to 9; .* blocks of 6"),
    ],
)
def test_what_is_refused(text: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"--growth-stages {text}: .*{named}"):
        plan_of(text, **options)
