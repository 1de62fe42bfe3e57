"""The schedule with restarts: its rates, what a checkpoint keeps of it, and what it refuses."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_compat import UserError
from fairseq_depthwise.optim.inverse_sqrt_restart import InverseSqrtRestartConfig, InverseSqrtRestartSchedule
from fairseq_depthwise.optim.restarting_schedule import RestartingConfig, RestartingSchedule

PEAK, INITIAL, WARMUP, TOTAL = 2e-3, 1e-7, 20, 120


class Optimizer(FairseqOptimizer):
    """As much of an optimizer as a schedule deals with."""

    def __init__(self) -> None:
        super().__init__(None)
        self._optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def schedule(**options: Any) -> InverseSqrtRestartSchedule:
    values = {"lr": [PEAK], "warmup_updates": WARMUP, "warmup_init_lr": INITIAL, **options}
    return InverseSqrtRestartSchedule(InverseSqrtRestartConfig(**values), Optimizer())


def simulated(borders: Iterable[int], start: int = 0, warmup: int = WARMUP) -> list[float]:
    """A second reading, update by update: the rates of ``TOTAL`` updates."""
    rates, step = [], min(start, warmup)
    for update in range(TOTAL):
        if update in borders:
            step = min(step, warmup)
        warming_up = INITIAL * (1 - step / warmup) + PEAK * step / warmup
        rates.append(warming_up if step < warmup else PEAK * math.sqrt(warmup) / math.sqrt(step))
        step += 1
    return rates


def run(one: InverseSqrtRestartSchedule, first: int = 0, end: int = TOTAL) -> list[float]:
    """The rates that the optimizer has in the updates that follow ``first``, ..., ``end - 1`` others."""
    rates = []
    for update in range(first, end):
        one.step_update(update)
        rates.append(one.optimizer.get_lr())
    return rates


def resumed(saved: dict[str, Any], updates: int, **options: Any) -> InverseSqrtRestartSchedule:
    """What fairseq's trainer makes of a checkpoint; it does the same when it is built anew during a run."""
    one = schedule(**options)
    one.step_update(0)
    one.load_state_dict(copy.deepcopy(saved))
    one.step_update(updates)
    return one


# --- rates ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    borders=st.sets(st.integers(1, TOTAL - 1), max_size=3),
    start=st.sampled_from([0, 7, WARMUP, 90]),
    planned=st.booleans(),
    stops=st.sets(st.integers(0, TOTAL - 1), max_size=4),
)
def test_the_rate_of_every_update(borders: set[int], start: int, planned: bool, stops: set[int]) -> None:
    """Restarts by the option or asked for, saved and loaded at some of the updates."""
    whole = simulated(borders, start)
    options = {"restart_updates": ",".join(map(str, sorted(borders))) if planned else ""}
    one = schedule(**options)
    assert one.start_at(start) == one.optimizer.get_lr() == pytest.approx(whole[0])
    for update in range(TOTAL):
        one.step_update(update)
        if not planned and update in borders:
            assert one.restart(update) == one.restart(update)
        if update in stops:
            one = resumed(one.state_dict(), update, **options)
        assert one.optimizer.get_lr() == pytest.approx(whole[update], rel=1e-12)
    assert one.state_dict()["restarts"] == sorted(borders)


class LinearDecay(RestartingSchedule):
    """A schedule that has nothing but its rate."""

    def rate(self, step: int) -> float:
        return self.peak * (1 - step / TOTAL)


def test_a_schedule_with_another_rate_restarts() -> None:
    decay = LinearDecay(RestartingConfig(lr=[PEAK], warmup_updates=0, restart_updates="30"), Optimizer())
    assert [decay.step_update(update) for update in (0, 29, 30, 31)] == pytest.approx(
        [PEAK, PEAK * (1 - 29 / TOTAL), PEAK, PEAK * (1 - 1 / TOTAL)]
    )
    assert decay.restart(40) == PEAK
    assert decay.state_dict()["restarts"] == [30, 40]
    assert decay.continues == ()


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [31, 50, 69])
def test_what_was_done_stays_done_and_what_lies_ahead_follows_the_option(updates: int) -> None:
    one = schedule(restart_updates="30,70")
    run(one, end=updates + 1)
    for changed, borders in (
        ("", (30,)),
        ("30", (30,)),
        ("100", (30, 100)),
        ("70,90", (30, 70, 90)),
        ("10,25,31,80", (30, 31, 80) if updates == 31 else (30, 80)),
    ):
        again = resumed(one.state_dict(), updates, restart_updates=changed)
        assert run(again, updates) == pytest.approx(simulated(borders)[updates:]), changed


@pytest.mark.parametrize("updates", [0, 10, 50])
def test_a_checkpoint_of_inverse_sqrt_has_had_no_restarts(updates: int) -> None:
    again = resumed({"best": 2.5}, updates, restart_updates="8,30,80")
    assert again.best == 2.5
    ahead = [border for border in (8, 30, 80) if border >= updates]
    assert run(again, updates) == pytest.approx(simulated(ahead)[updates:])


def test_without_a_state_the_option_says_what_was_done() -> None:
    """``--reset-lr-scheduler``: fairseq loads no state, but it knows the number of updates."""
    one = schedule(restart_updates="30,70")
    assert run(one, first=50) == pytest.approx(simulated((30, 70))[50:])


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "8,8", "12,8", "8,,12", "8.5", "8 12"])
def test_restarts_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"--restart-updates .*{text}"):
        schedule(restart_updates=text)


def test_a_refused_rate_names_the_schedule() -> None:
    with pytest.raises(UserError, match=r"--lr '0\.1,0\.2' .*linear_decay"):
        LinearDecay(RestartingConfig(_name="linear_decay", lr=[0.1, 0.2]), Optimizer())
