"""fairseq can be imported on Python 3.11 and newer, with the configuration classes as fairseq means them."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from types import ModuleType

import pytest

from fairseq_compat.patches.options.dataclass_defaults import adjust


def test_defaults_stay_instances_that_hydra_can_read() -> None:
    configs = importlib.import_module("fairseq.dataclass.configs")
    for field in dataclasses.fields(configs.FairseqConfig):
        if field.name in ("common", "dataset", "checkpoint"):
            assert dataclasses.is_dataclass(field.default), field.name
    assert configs.FairseqConfig().common.seed == 1


@pytest.mark.parametrize("fails", [False, True])
def test_dataclasses_is_as_before_afterwards(fails: bool) -> None:
    original = dataclasses.dataclass
    around = adjust(ModuleType("somewhere"))
    next(around)
    with pytest.raises(RuntimeError if fails else StopIteration):
        around.throw(RuntimeError("body")) if fails else next(around)
    assert dataclasses.dataclass is original


def test_importing_fairseq_leaves_dataclasses_alone() -> None:
    importlib.import_module("fairseq")
    assert dataclasses.dataclass.__module__ == "dataclasses"

    @dataclasses.dataclass
    class Ordinary:
        number: int = 1

    assert Ordinary.__hash__ is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="nothing is replaced on Python 3.10")
def test_only_classes_of_the_module_itself_become_hashable() -> None:
    around = adjust(ModuleType("somewhere"))
    next(around)
    try:
        ours = dataclasses.dataclass(type("Ours", (), {"__module__": "somewhere"}))
        with_options = dataclasses.dataclass(order=True)(type("Ours", (), {"__module__": "somewhere"}))
        frozen = dataclasses.dataclass(frozen=True)(type("Ours", (), {"__module__": "somewhere"}))
        other = dataclasses.dataclass(type("Other", (), {"__module__": "elsewhere"}))
    finally:
        around.close()
    assert ours.__hash__ is object.__hash__
    assert with_options.__hash__ is object.__hash__
    assert frozen.__hash__ not in (None, object.__hash__)
    assert other.__hash__ is None


@pytest.mark.parametrize(("version", "hashable"), [("1.0.7", True), ("1.3.2", False)])
def test_hydra_is_changed_only_where_it_has_the_fault(
    version: str, hashable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hydra = ModuleType("hydra")
    hydra.__version__ = version  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "hydra", hydra)
    around = adjust(ModuleType("hydra.conf"))
    next(around)
    try:
        made = dataclasses.dataclass(type("Conf", (), {"__module__": "hydra.conf"}))
    finally:
        around.close()
    assert (made.__hash__ is not None) == (hashable and sys.version_info >= (3, 11))
