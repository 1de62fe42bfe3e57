"""``benchmarks/growth.py`` as a program, with tiny models on a few sentences, and what it computes without training."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import growth
import pytest
from forked_python import ForkedPython
from growth_schedules import (
    PAPER,
    SCHEDULES,
    seconds_at,
    share_of_time,
    stages_text,
    time_saved,
    time_to_loss,
)
from trainings import growth_steps, step_times
from workplace import StepwiseTraining

from fairseq_compat import UserError

RunGrowth = Callable[..., tuple[object, str]]

TINY = [
    "--device=cpu", "--parts=saving", "--rounds=1", "--merges=60", "--width=8", "--heads=2", "--block-size=1",
    "--decoder-layers=1", "--max-tokens=100", "--saving-updates=21", "--probe-warm-up=1", "--probe-updates=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_growth(forked_python: ForkedPython) -> RunGrowth:
    """``run_growth(corpus, work, *options)``: status and what it wrote to stderr; its trainings are forks."""

    importlib.import_module("torch._dynamo")  # the first optimizer of a process does it: here, and not in every fork

    def run(corpus: Path, work: Path, *options: str) -> tuple[object, str]:
        given = [f"--corpus={corpus}", f"--work={work}", f"--records={work.parent}", *TINY, *options]
        errors = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            open(1, "w", closefd=False) as stdout,  # which a fork has replaced by its log
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(errors),
        ):
            patch.setattr(StepwiseTraining, "start_method", "fork")
            # fairseq's command sets up logging when it is imported: in each fork, to that fork's output.
            patch.setattr(logging.root, "handlers", [])
            patch.delitem(sys.modules, "fairseq_cli.train", raising=False)
            patch.setattr(sys, "executable", str(forked_python.python))  # commands are looked for next to it
            try:
                status: object = growth.main(given)
            except SystemExit as ended:
                status = ended.code
        return status, errors.getvalue()

    return run


@pytest.fixture(scope="module")
def work(run_growth: RunGrowth, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a run of the part "saving"."""
    folder = tmp_path_factory.mktemp("growth") / "work"
    status, errors = run_growth(corpus, folder)
    assert status == 0, errors
    return folder


class TestProgram:
    @pytest.mark.long
    def test_numbers_of_all_depths(self, work: Path) -> None:
        record = json.loads((work.parent / "growth_saving.json").read_text(encoding="utf-8"))
        (measured,) = record["rounds"]
        assert list(map(int, record["lengths"])) == list(range(1, 9))
        assert sum(record["lengths"].values()) == 21
        assert list(measured["steps"]) == list(record["lengths"])
        # Two updates after one to warm up, and all of the long trainings'.
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in measured["steps"].values())
        assert all(len(measured[name]) == 21 and min(measured[name]) > 0 for name in ("deep", "staged"))
        grown = [(step["before"], step["after"], step["updates"]) for step in record["growth"]]
        assert grown == [(1, 2, 2), (2, 3, 4), (3, 4, 6), (4, 5, 8), (5, 6, 10), (6, 7, 13), (7, 8, 16)]
        assert str(work.parent) not in json.dumps(record)

    @pytest.mark.long
    def test_finished_trainings_are_not_repeated(self, run_growth: RunGrowth, corpus: Path, work: Path) -> None:
        path = work.parent / "growth_saving.json"
        before = json.loads(path.read_text(encoding="utf-8"))["rounds"]
        path.unlink()
        status, errors = run_growth(corpus, work)
        assert status == 0, errors
        assert "$ " not in errors
        assert json.loads(path.read_text(encoding="utf-8"))["rounds"] == before

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--width=16",), ["width 8, not 16"]),
            (("--parts=nothing",), ["--parts", "'nothing'", "saving, time-to-loss"]),
            (("--saving-updates=20",), ["--saving-updates", "at least 21"]),
            (("--loss-updates=21", "--validations=21"), ["--loss-updates 21", "--validations"]),
        ],
    )
    def test_bad_option_is_named_with_its_value(
        self, run_growth: RunGrowth, options: tuple[str, ...], words: list[str], corpus: Path, work: Path
    ) -> None:
        status, errors = run_growth(corpus, work, *options)
        assert status != 0
        assert all(word in errors.splitlines()[-1] for word in ["error: ", *words])


class TestSchedules:
    def test_papers_schedule_in_updates(self) -> None:
        lengths = SCHEDULES[PAPER].lengths(210, 3)
        assert stages_text(lengths) == "3:20u,6:20u,9:20u,12:20u,15:20u,18:30u,21:30u,24:50u"

    @pytest.mark.parametrize("name", SCHEDULES)
    @pytest.mark.parametrize("updates", [100, 841])
    def test_stages_take_all_updates_and_can_be_grown(self, name: str, updates: int) -> None:
        schedule = SCHEDULES[name]
        lengths = schedule.lengths(updates, 6)
        assert sum(lengths.values()) == updates
        # Top-most growth copies at most as many layers as there are.
        assert all(shallow < deep <= 2 * shallow for shallow, deep in itertools.pairwise(lengths))
        assert schedule.grows == (len(lengths) > 1)
        assert max(lengths) == 48 or not schedule.grows

    def test_too_few_updates(self) -> None:
        with pytest.raises(UserError, match="7 updates are too few"):
            SCHEDULES[PAPER].lengths(7, 3)


class TestPrediction:
    def test_time_saved_by_hand(self) -> None:
        # 30 updates of 1 s and 10 of 4 s are 70 s instead of 160.
        assert time_saved({3: 30, 12: 10}, {3: 1.0, 6: 2.0, 12: 4.0}) == pytest.approx(90 / 160)
        assert time_saved({24: 210}, {3: 0.1, 24: 0.5}) == 0

    def test_share_of_time_does_not_depend_on_the_machines_speed(self) -> None:
        deep = [1.0, 1.0, 5.0, 5.0, 2.0]
        # A third of the deep model's time while it is shallow, though one update stumbled; then all of it.
        staged = [1 / 3, 1 / 3, 5 / 3, 99.0, 2.0]
        assert share_of_time({3: 3, 24: 2}, staged, deep) == pytest.approx((3 / 3 + 2 * (99 / 5 + 1) / 2) / 5)
        assert share_of_time({3: 4, 24: 1}, staged, deep) == pytest.approx((4 / 3 + 1) / 5)

    def test_seconds_of_a_schedule(self) -> None:
        # Three updates of 1 s, then those of 10 s.
        assert [seconds_at(update, {3: 3, 6: 3}, {3: 1.0, 6: 10.0}) for update in (2, 4, 6)] == [2, 13, 33]

    @pytest.mark.parametrize(
        ("loss", "expected"),
        [(9.5, 10.0), (9.0, 10.0), (8.5, 15.0), (8.0, 20.0), (7.5, 35.0), (7.0, 40.0), (6.9, None)],
    )
    def test_time_to_loss_is_that_of_the_first_time(self, loss: float, expected: float | None) -> None:
        curve = [(10.0, 9.0), (20.0, 8.0), (30.0, 8.0), (40.0, 7.0), (50.0, 8.0)]
        assert time_to_loss(curve, loss) == (None if expected is None else pytest.approx(expected))


class TestLogs:
    def test_growth_steps(self) -> None:
        line = (
            "2026-01-01 10:00:00 | INFO | live | grew the encoder from 3 to 6 layers after 20 updates in 0.25 s; rate"
        )
        assert growth_steps(f"x\n{line}\n") == [{"before": 3, "after": 6, "updates": 20, "seconds": 0.25}]

    def test_steps_at_each_depth(self) -> None:
        def update(number: int, seconds: float) -> str:
            values = {"num_updates": number, "wpb": 100, "wps": 100 / seconds if seconds else 0}
            text = json.dumps({key: str(value) for key, value in values.items()})
            return f"2026-01-01 10:00:00 | INFO | train_inner | {text}"

        log = "\n".join(update(number, seconds) for number, seconds in enumerate((0, 1, 3, 5, 4, 9, 4), start=1))
        assert step_times(log, {3: 3, 6: 4}) == {3: pytest.approx(2), 6: pytest.approx(4.5)}
