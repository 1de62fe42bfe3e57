"""A part of the data that is trained on and validated on has an iterator for each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.trainer import Trainer


@pytest.mark.parametrize(("subset", "own"), [("train", True), ("valid", False)])
def test_iterator_of_its_own(subset: str, own: bool) -> None:
    asked: dict[str, Any] = {}

    def get_batch_iterator(**given: Any) -> Any:
        asked.update(given)
        return SimpleNamespace(first_batch=None)

    anything = SimpleNamespace(
        train_subset="train", max_tokens_valid=1, batch_size_valid=1, skip_invalid_size_inputs_valid_test=False,
        required_batch_size_multiple=1, num_workers=0, data_buffer_size=0, seed=1,
    )  # fmt: skip
    positions = SimpleNamespace(max_positions=lambda: 9)
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(dataset=anything, common=anything), model=positions, data_parallel_world_size=1,
        task=SimpleNamespace(dataset=str, get_batch_iterator=get_batch_iterator, max_positions=lambda: 9),
        data_parallel_rank=0, reset_dummy_batch=lambda batch: None,
    )  # fmt: skip
    Trainer.get_valid_iterator(trainer, subset)
    assert asked["disable_iterator_cache"] is own
