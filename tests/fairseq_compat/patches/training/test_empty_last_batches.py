"""An update whose last batch is empty is that of the batches before it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from growing_trainer import BATCHES, trainer_of


@pytest.mark.parametrize("empty", [[], {}, None])
def test_an_empty_batch_changes_nothing(empty: Any) -> None:
    trained = []
    for more in ([], [empty]):
        trainer = trainer_of()
        for _ in range(2):
            trainer.train_step([BATCHES[0], *more])
        trained.append(trainer.model.state_dict())
    for name, parameter in trained[0].items():
        assert torch.equal(parameter, trained[1][name]), name


def test_fully_sharded_processes_run_as_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of()
    monkeypatch.setattr(type(trainer), "is_fsdp", True)
    prepared: list[Any] = []
    original = trainer._prepare_sample

    def prepare(sample: Any, **more: Any) -> Any:
        prepared.append(sample)
        return original(sample, **more)

    monkeypatch.setattr(trainer, "_prepare_sample", prepare)
    trainer.reset_dummy_batch(BATCHES[0])
    trainer.train_step([BATCHES[0], []])
    assert [] in prepared


def test_a_process_that_has_empty_batches_only() -> None:
    """It runs an earlier batch, without a gradient, so that the others need not wait."""
    trainer = trainer_of()
    trainer.reset_dummy_batch(BATCHES[0])  # as at the start of an epoch
    assert trainer.train_step([[], []]) is not None
    gradients = [parameter.grad for parameter in trainer.model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(not gradient.any() for gradient in gradients)
