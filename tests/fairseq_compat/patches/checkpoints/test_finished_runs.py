"""Repeating the command of a finished run changes nothing."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_compat.patches.checkpoints.finished_runs import adjust


def _train(limit: int | None, done: int, patience: int, failed: int) -> Any:
    """Return what fairseq's ``train`` returns after so many updates and validations in a row that were no better."""
    module: Any = ModuleType("fairseq_cli.train")
    module.train = lambda *given: ([1.5], False)
    module.should_stop_early = SimpleNamespace(best=2.5, num_runs=failed)
    for _ in adjust(module):
        pass
    cfg = SimpleNamespace(optimization=SimpleNamespace(max_update=limit), checkpoint=SimpleNamespace(patience=patience))
    return module.train(cfg, SimpleNamespace(get_num_updates=lambda: done), None, None)


@pytest.mark.parametrize(
    ("limit", "done", "trains"), [(10, 9, True), (10, 10, False), (10, 11, False), (0, 99, True), (None, 99, True)]
)
def test_an_epoch_begins_only_where_updates_are_left(limit: int | None, done: int, trains: bool) -> None:
    assert _train(limit, done, -1, 0) == (([1.5], False) if trains else ([None], True))


@pytest.mark.parametrize(("patience", "failed", "trains"), [(3, 2, True), (3, 3, False), (-1, 3, True)])
def test_an_epoch_begins_only_where_patience_is_left(patience: int, failed: int, trains: bool) -> None:
    assert _train(None, 5, patience, failed) == (([1.5], False) if trains else ([None], True))
