"""A run that goes on from a checkpoint goes on counting validations that were no better."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_compat.patches.training.patience import adjust


class _Trainer:
    """The part of fairseq's that reads and writes checkpoints."""

    def __init__(self) -> None:
        self.saved: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"extra_state": {"train_iterator": {}}}

    def load_checkpoint(self, filename: str, *given: Any) -> dict[str, Any] | None:
        return self.saved.get(filename)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    command: Any = ModuleType("fairseq_cli.train")
    command.should_stop_early = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "fairseq_cli.train", command)
    module: Any = ModuleType("fairseq.trainer")
    module.Trainer = type("Trainer", (_Trainer,), {})
    for _ in adjust(module):
        pass
    return module.Trainer()


def _counts() -> dict[str, Any]:
    return vars(sys.modules["fairseq_cli.train"].should_stop_early)


def test_a_checkpoint_has_the_count_and_a_resumed_run_takes_it(trainer: Any) -> None:
    _counts().update(best=2.5, num_runs=4)
    trainer.saved["last.pt"] = trainer.state_dict()["extra_state"]
    _counts().clear()  # another process
    trainer.load_checkpoint("last.pt", False, False, None, reset_meters=False)
    assert _counts() == {"best": 2.5, "num_runs": 4}


@pytest.mark.parametrize("reset", [{"reset_optimizer": True}, {"reset_meters": True}])
def test_a_training_that_begins_anew_does_not_take_it(trainer: Any, reset: dict[str, bool]) -> None:
    trainer.saved["other.pt"] = {"patience": {"best": 2.5, "num_runs": 4}}
    trainer.load_checkpoint("other.pt", **reset)
    assert _counts() == {}


def test_no_count_before_the_first_validation_nor_without_a_checkpoint(trainer: Any) -> None:
    assert trainer.state_dict()["extra_state"] == {"train_iterator": {}}
    assert trainer.load_checkpoint("none.pt") is None
    assert _counts() == {}
