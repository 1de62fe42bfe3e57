"""Both directions of a pair read the same files, and each has its own language tag, with the option and without."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq import tasks
from many_languages import configured, make_data

from fairseq_compat.patches.data.data_of_both_directions import adjust


@pytest.mark.parametrize("option", [[], ["--enable-reservsed-directions-shared-datasets"]], ids=["without", "with"])
def test_each_direction_has_its_own_tag(tmp_path: Path, option: list[str]) -> None:
    task = tasks.setup_task(configured(make_data(tmp_path / "data", 1), 1, *option).task)
    task.load_dataset("train")
    there, back = task.datasets["train"].datasets
    for number in range(len(there)):
        forwards, backwards = there[number], back[number]
        for sample, language in ((forwards, "l00"), (backwards, "en")):
            assert int(sample["source"][0]) == task.dicts["en"].index(f"__{language}__")
        assert forwards["source"][1:].tolist() == backwards["target"].tolist()
        assert backwards["source"][1:].tolist() == forwards["target"].tolist()
    assert there.src.dataset is back.tgt
    assert there.tgt is back.src.dataset


def test_data_is_shared_while_in_use_and_only_of_the_kind_without_state() -> None:
    class Mapped:
        pass

    class Buffered:
        pass

    class Manager:
        def load_langpair_dataset(self) -> None:
            raise AssertionError("not called here")

        @classmethod
        def load_data(cls, path: str, vdict: Any, impl: str) -> Any:
            opened.append(path)
            return Mapped() if impl == "mmap" else Buffered()

    opened: list[str] = []
    module: Any = SimpleNamespace(
        MultilingualDatasetManager=Manager, indexed_dataset=SimpleNamespace(MMapIndexedDataset=Mapped)
    )
    for _ in adjust(module):
        pass
    first = Manager.load_data("one", None, "mmap")
    assert Manager.load_data("one", None, "mmap") is first
    assert opened == ["one"]
    del first
    Manager.load_data("one", None, "mmap")
    assert opened == ["one", "one"]
    assert Manager.load_data("two", None, "cached") is not Manager.load_data("two", None, "cached")
