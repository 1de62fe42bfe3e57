"""Which checkpoints there are after a number of updates, epochs and validations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq_cli.train
import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from fairseq_compat.patches import saving

#: Updates of an epoch.
EPOCH = 8


@pytest.fixture(autouse=True)
def forget() -> Iterator[Callable[[], None]]:
    """Forget the scores of earlier tests; fairseq keeps them as attributes of its functions."""

    def call() -> None:
        for function in (checkpoint_utils.save_checkpoint, fairseq_cli.train.should_stop_early):
            for name in ("best", "num_runs"):
                vars(function).pop(name, None)

    call()
    yield call
    call()


class Trainer:
    """A trainer that saves its number of updates and nothing else."""

    data_parallel_rank, checkpoint_suffix, should_save_checkpoint_on_current_rank = 0, "", True
    updates = 0

    def get_num_updates(self) -> int:
        return self.updates

    def consolidate_optimizer(self) -> None:
        pass

    def cumulative_training_time(self) -> float:
        return 0.0

    def save_checkpoint(self, path: str, extra_state: dict[str, Any]) -> None:
        Path(path).write_text(str(self.updates))


def epoch_of(updates: int) -> Any:
    """The place in an epoch after an update."""
    ends = updates % EPOCH == 0
    return SimpleNamespace(epoch=-(-updates // EPOCH), end_of_epoch=lambda: ends, state_dict=dict)


def save(folder: Path, updates: int, score: float | None, **options: Any) -> None:
    trainer = Trainer()
    trainer.updates = updates
    cfg = CheckpointConfig(save_dir=str(folder), **options)
    checkpoint_utils.save_checkpoint(cfg, trainer, epoch_of(updates), score)


def kept_as_best(folder: Path, metric: str = "loss") -> list[int]:
    """The updates of the models that were kept as best."""
    return sorted(int(path.read_text()) for path in folder.glob(f"checkpoint.best_{metric}_*.pt"))


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "maximize", "expected"),
    [
        ([2.0, 2.1, 2.2, 2.3, 1.9], False, [1, 2, 5]),
        ([2.0, 2.1, 2.2, 2.3, 1.9], True, [2, 3, 4]),
        ([2.0] * 5, False, [3, 4, 5]),
        ([2.0] * 5, True, [3, 4, 5]),
        ([-1.5, -2.5, -0.5, -3.5, 0.5], False, [1, 2, 4]),
        ([NAN, 3.0, NAN, 2.0, 4.0], False, [2, 4, 5]),
        ([2.0004, 2.0002, 2.0003, 1.9999, 2.5], False, [2, 3, 4]),
    ],
)
def test_as_many_of_the_best_as_asked_for(
    scores: list[float], maximize: bool, expected: list[int], tmp_path: Path
) -> None:
    options = {"keep_best_checkpoints": 3, "maximize_best_checkpoint_metric": maximize}
    for updates, score in enumerate(scores, start=1):
        save(tmp_path, updates, score, **options)
        assert len(kept_as_best(tmp_path)) == len([one for one in scores[:updates] if one == one][:3])
    assert kept_as_best(tmp_path) == expected
    save(tmp_path, 5, scores[-1], **options)  # by a run that was killed after it had saved, and goes on
    assert kept_as_best(tmp_path) == expected
    best = [(score, updates) for updates, score in enumerate(scores, start=1) if score == score]
    score, _ = (max if maximize else min)(best)
    assert (tmp_path / "checkpoint_best.pt").read_text() == str([updates for one, updates in best if one == score][-1])


def test_of_another_metric_none_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 1, 20.0, keep_best_checkpoints=1, best_checkpoint_metric="bleu")
    save(tmp_path, 2, 2.0, keep_best_checkpoints=1)
    assert (kept_as_best(tmp_path, "bleu"), kept_as_best(tmp_path)) == ([1], [2])


def test_every_multiple_is_saved_and_as_many_are_kept_as_asked_for(tmp_path: Path) -> None:
    for updates in range(1, 2 * EPOCH + 1):
        save(tmp_path, updates, None, save_interval_updates=4, keep_last_epochs=1)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"checkpoint_{name}.pt" for name in ("1_4", "1_8", "2_12", "2_16", "last")} | {"checkpoint2.pt"}
    save(tmp_path, 3 * EPOCH, None, save_interval_updates=4, keep_interval_updates=2, no_epoch_checkpoints=True)
    assert sorted(tmp_path.glob("checkpoint_*_*")) == [tmp_path / f"checkpoint_{name}.pt" for name in ("2_16", "3_24")]


def run(folder: Path, updates: int, scores: dict[int, float], **options: Any) -> tuple[list[str], int]:
    """Names of what is saved until an update, after which the run is stopped, and the updates that were validated."""
    validated = []

    def validate(*_: Any) -> list[float]:
        validated.append(trainer.updates)
        return [scores.get(trainer.updates, 9.0)]

    checkpoint = {"save_dir": str(folder), "patience": 2, "no_epoch_checkpoints": True, "save_interval_updates": 3}
    dataset = {"validate_interval": 1, "validate_interval_updates": 0, "validate_after_updates": 0}
    cfg = SimpleNamespace(
        checkpoint=CheckpointConfig(**checkpoint),
        dataset=SimpleNamespace(**{**dataset, "disable_validation": False, **options}),
        optimization=SimpleNamespace(max_update=updates, stop_time_hours=0),
    )
    trainer = Trainer()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(fairseq_cli.train, "validate", validate)
        for trainer.updates in range(1, updates + 1):
            place = epoch_of(trainer.updates)
            fairseq_cli.train.validate_and_save(cfg, trainer, None, place, ["valid"], place.end_of_epoch())
    return sorted(os.listdir(folder)), vars(fairseq_cli.train.should_stop_early).get("num_runs", -1)


def test_updates_that_are_not_validated_yet_are_saved(tmp_path: Path) -> None:
    names, _ = run(tmp_path, 7, {}, validate_after_updates=5)
    assert {"checkpoint_1_3.pt", "checkpoint_1_6.pt"} <= set(names)


def test_a_validation_at_a_stop_does_not_count_for_patience(tmp_path: Path, forget: Callable[[], None]) -> None:
    assert run(tmp_path, 6, {3: 1.0})[1] == 1
    forget()
    assert run(tmp_path, 7, {3: 1.0})[1] == 1  # fairseq: 2, after which it stops


@pytest.mark.parametrize("maximize", [False, True])
def test_a_score_that_is_no_number_is_no_best_one_for_patience(maximize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving._validation, "is_due", True)
    checkpoint = CheckpointConfig(patience=2, maximize_best_checkpoint_metric=maximize)
    cfg, sign = SimpleNamespace(checkpoint=checkpoint), 1 if maximize else -1
    scores = [float("nan"), 1.0 * sign, float("nan"), 2.0 * sign, float("inf"), float("nan")]
    stops = [fairseq_cli.train.should_stop_early(cfg, score) for score in scores]
    assert stops == [False] * 5 + [True]


def test_checkpoints_of_later_epochs_are_another_runs(tmp_path: Path) -> None:
    (tmp_path / "checkpoint100.pt").write_text("another run's")
    for epoch in (1, 2):
        save(tmp_path, epoch * EPOCH, None, keep_last_epochs=1)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint100.pt", "checkpoint2.pt", "checkpoint_last.pt"}
