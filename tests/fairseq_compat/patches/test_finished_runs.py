"""Repeating the command of a finished run changes nothing."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_compat.patches.finished_runs import adjust


@pytest.mark.parametrize(
    ("limit", "done", "trains"), [(10, 9, True), (10, 10, False), (10, 11, False), (0, 99, True), (None, 99, True)]
)
def test_an_epoch_begins_only_where_updates_are_left(limit: int | None, done: int, trains: bool) -> None:
    module: Any = ModuleType("fairseq_cli.train")
    module.train = lambda *given: ([1.5], False)
    for _ in adjust(module):
        pass
    cfg = SimpleNamespace(optimization=SimpleNamespace(max_update=limit))
    trainer = SimpleNamespace(get_num_updates=lambda: done)
    assert module.train(cfg, trainer, None, None) == (([1.5], False) if trains else ([None], True))
