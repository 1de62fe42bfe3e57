"""``benchmarks/growth.py`` as a program, with tiny models on a few sentences, and what it computes without training."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growth_logs import (
    Growth,
    Point,
    at_steady_speed,
    growth_steps,
    loss_curve,
    step_times,
    time_to_loss,
)
from growth_schedules import (
    DEEP,
    PAPER,
    SCHEDULES,
    Schedule,
    encoder_share,
    limit_of_saving,
    share_of_time,
    shares_of_products,
    stages_text,
    time_saved,
)

from fairseq_compat import UserError

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

TINY = [
    "--device=cpu", "--parts=saving", "--rounds=1", "--merges=60", "--width=8", "--heads=2", "--block-size=1",
    "--decoder-layers=1", "--max-tokens=100", "--saving-updates=21", "--probe-warm-up=1", "--probe-updates=2",
]  # fmt: skip

#: One worker for all tests here, so that the program runs once.
pytestmark = pytest.mark.xdist_group("growth benchmark")


@pytest.fixture(scope="module")
def run_program(run_benchmark: RunBenchmark) -> RunBenchmark:
    """``run_program(corpus, work, *options)``."""

    def run(corpus: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return run_benchmark("growth.py", f"--corpus={corpus}", f"--work={work}", f"--output={work}.md", *options)

    return run


@pytest.fixture(scope="module")
def work(run_program: RunBenchmark, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a run of the part "saving"."""
    folder = tmp_path_factory.mktemp("growth") / "work"
    done = run_program(corpus, folder, *TINY)
    assert done.returncode == 0, done.stderr
    return folder


class TestProgram:
    def test_numbers_of_all_depths(self, work: Path) -> None:
        numbers = json.loads((work / "saving.json").read_text(encoding="utf-8"))
        (measured,) = numbers["rounds"]
        assert list(map(int, numbers["lengths"])) == list(range(1, 9))
        assert sum(numbers["lengths"].values()) == 21
        assert list(measured["steps"]) == list(numbers["lengths"])
        # Two updates after one to warm up, and all of the long trainings'.
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in measured["steps"].values())
        assert all(len(measured[name]) == 21 and min(measured[name]) > 0 for name in ("deep", "staged"))

    def test_training_grew(self, work: Path) -> None:
        steps = growth_steps((work / "saving1-staged.log").read_text(encoding="utf-8"))
        assert [(step.before, step.after) for step in steps] == [(layers, layers + 1) for layers in range(1, 8)]
        assert [step.updates for step in steps] == [2, 4, 6, 8, 10, 13, 16]

    def test_page(self, work: Path) -> None:
        text = Path(f"{work}.md").read_text(encoding="utf-8")
        assert text.startswith("<!-- growth -->\n\n# Shallow-to-deep training\n")
        assert "## Time saved" in text
        assert "1, 2, 3, 4, 5, 6, 7, 8 layers\nfor 2, 2, 2, 2, 2, 3, 3, 5 updates" in text
        assert not re.search(r"(^|[\s`=])/\w", text)
        assert str(work.parent) not in text

    def test_finished_trainings_are_not_repeated(self, run_program: RunBenchmark, corpus: Path, work: Path) -> None:
        page = Path(f"{work}.md")
        before = page.read_text(encoding="utf-8")
        page.unlink()
        done = run_program(corpus, work, *TINY)
        assert done.returncode == 0, done.stderr
        assert "$ " not in done.stderr
        assert page.read_text(encoding="utf-8") == before

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--width=16",), ["width 8, not 16", "give another folder"]),
            (("--parts=nothing",), ["--parts", "'nothing'", "saving, projection, step, time-to-loss"]),
            (("--saving-updates=20",), ["--saving-updates", "at least 21"]),
            (("--loss-updates=21", "--validations=21"), ["--loss-updates 21", "--validations"]),
        ],
    )
    def test_bad_option_gets_one_sentence(
        self, run_program: RunBenchmark, options: tuple[str, ...], words: list[str], corpus: Path, work: Path
    ) -> None:
        done = run_program(corpus, work, *TINY, *options)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        sentence = done.stderr.splitlines()[-1]
        assert "error: " in sentence
        assert all(word in sentence for word in words)


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
        depths = list(lengths)
        # Top-most growth copies at most as many layers as there are.
        assert all(shallow < deep <= 2 * shallow for shallow, deep in itertools.pairwise(depths))
        assert schedule.grows == (len(depths) > 1)
        assert max(depths) == 48 or not schedule.grows

    def test_schedule_is_data(self) -> None:
        assert Schedule("half and half", ((1, 1), (2, 1))).lengths(5, 4) == {4: 2, 8: 3}

    def test_too_few_updates(self) -> None:
        with pytest.raises(UserError, match="7 updates are too few for a schedule of 8 stages"):
            SCHEDULES[PAPER].lengths(7, 3)

    def test_restarts_are_where_the_papers_schedule_grows(self) -> None:
        borders, done = [], 0
        for updates in list(SCHEDULES[PAPER].lengths(840, 3).values())[:-1]:
            done += updates
            borders.append(done)
        assert SCHEDULES["restarted"].restart_updates(840) == borders
        assert SCHEDULES[DEEP].restart_updates(840) == []


class TestPrediction:
    def test_by_hand(self) -> None:
        # 30 updates of 1 s and 10 of 4 s are 70 s instead of 160.
        assert time_saved({3: 30, 12: 10}, {3: 1.0, 6: 2.0, 12: 4.0}) == pytest.approx(90 / 160)

    def test_share_of_time_does_not_depend_on_the_machines_speed(self) -> None:
        deep = [1.0, 1.0, 5.0, 5.0, 2.0]
        # A third of the deep model's time while it is shallow, though one update stumbled; then all of it.
        staged = [1 / 3, 1 / 3, 5 / 3, 99.0, 2.0]
        assert share_of_time({3: 3, 24: 2}, staged, deep) == pytest.approx((3 / 3 + 2 * (99 / 5 + 1) / 2) / 5)
        assert share_of_time({3: 4, 24: 1}, staged, deep) == pytest.approx((4 / 3 + 1) / 5)

    def test_depth_from_the_start_saves_nothing(self) -> None:
        assert time_saved({24: 210}, {3: 0.1, 24: 0.5}) == 0

    def test_shallow_throughout_is_compared_with_the_deepest(self) -> None:
        assert time_saved({6: 10}, {6: 0.2, 24: 0.5}) == pytest.approx(0.6)

    def test_limits_of_the_papers_schedules(self) -> None:
        # 1 - (2 (6 + 12 + 18 + 24 + 30) + 3 (36 + 42) + 5 * 48) / (21 * 48)
        lengths = {6: 2, 12: 2, 18: 2, 24: 2, 30: 2, 36: 3, 42: 3, 48: 5}
        assert limit_of_saving(lengths, 48) == pytest.approx(0.3512, abs=1e-4)
        assert limit_of_saving({6: 1}, 48) == pytest.approx(0.875)

    def test_encoder_share(self) -> None:
        # 2 s besides the encoder, and 0.5 s for each of its layers.
        assert encoder_share({3: 3.5, 6: 5.0, 12: 8.0}) == pytest.approx(6 / 8)

    def test_scaled_model_has_the_shares_of_the_papers(self) -> None:
        papers, scaled = shares_of_products(48, 6, 512, 34000), shares_of_products(24, 3, 64, 2184)
        assert sum(papers) == pytest.approx(1)
        assert scaled == pytest.approx(papers, abs=0.01)


def line(kind: str, **values: Any) -> str:
    """A line of fairseq's log, whose values are texts."""
    return f"2026-01-01 10:00:00 | INFO | {kind} | " + json.dumps({key: str(value) for key, value in values.items()})


def update(number: int, tokens: int, seconds: float) -> str:
    return line("train_inner", num_updates=number, wpb=tokens, wps=tokens / seconds if seconds else 0)


def validation(number: int, loss: float) -> str:
    return line("valid", valid_num_updates=number, valid_loss=loss)


GREW = "2026-01-01 10:00:00 | INFO | live_growth | grew the encoder from 3 to 6 layers after {} updates in 0.25 s; rate"


class TestLogs:
    def test_growth_steps(self) -> None:
        assert growth_steps(f"x\n{GREW.format(20)}\n") == [Growth(3, 6, 20, 0.25)]

    def test_curve_leaves_validations_out(self) -> None:
        log = "\n".join(
            [
                update(1, 300, 0), update(2, 100, 1), update(3, 200, 2), validation(3, 9.0),  # 600 tokens, 0.01 s each
                GREW.format(3),
                update(4, 100, 50), update(5, 100, 2), update(6, 100, 4), validation(6, 8.0),  # 300 tokens, 0.03 s each
            ]
        )  # fmt: skip
        assert loss_curve(log) == [Point(3, pytest.approx(6.0), 9.0), Point(6, pytest.approx(6 + 9 + 0.25), 8.0)]

    def test_steps_at_each_depth(self) -> None:
        log = "\n".join(update(number, 100, seconds) for number, seconds in enumerate((0, 1, 3, 5, 4, 9, 4), start=1))
        assert step_times(log, {3: 3, 6: 4}) == {3: pytest.approx(2), 6: pytest.approx(4.5)}

    def test_steady_speed(self) -> None:
        curve = [Point(2, 7.0, 9.0), Point(4, 9.0, 8.0), Point(6, 99.0, 7.0)]
        # Three updates of 1 s, then those of 10 s.
        assert [point.seconds for point in at_steady_speed(curve, {3: 3, 6: 3}, {3: 1.0, 6: 10.0})] == [2, 13, 33]

    def test_curve_of_a_training_that_went_on(self) -> None:
        parts = [update(1, 100, 0), update(2, 100, 1), validation(2, 9.0), update(3, 100, 7)]
        again = [update(3, 100, 0), update(4, 100, 1), update(5, 100, 3), validation(5, 8.0)]
        assert loss_curve("\n".join([*parts, *again]))[-1] == Point(5, pytest.approx(2 + 6), 8.0)

    @pytest.mark.parametrize(
        ("loss", "expected"),
        [(9.5, 10.0), (9.0, 10.0), (8.5, 15.0), (8.0, 20.0), (7.5, 35.0), (7.0, 40.0), (6.9, None)],
    )
    def test_time_to_loss(self, loss: float, expected: float | None) -> None:
        # It rises in between, after a restart of the learning rate.
        curve = [Point(1, 10.0, 9.0), Point(2, 20.0, 8.0), Point(3, 30.0, 8.0), Point(4, 40.0, 7.0)]
        assert time_to_loss(curve, loss) == (None if expected is None else pytest.approx(expected))

    def test_time_to_loss_counts_the_first_time(self) -> None:
        assert time_to_loss([Point(1, 1.0, 9.0), Point(2, 2.0, 7.0), Point(3, 3.0, 8.0)], 8.0) == pytest.approx(1.5)
