"""Equal dictionaries are read once and kept once; others are told apart as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import tasks
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from many_languages import configured, languages, make_data


def test_the_dictionary_of_many_languages_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    load = TranslationMultiSimpleEpochTask.load_dictionary
    monkeypatch.setattr(
        TranslationMultiSimpleEpochTask, "load_dictionary", lambda path: read.append(path) or load(path)
    )
    task = tasks.setup_task(configured(make_data(tmp_path / "data", 4), 4).task)
    assert len(read) == 1
    assert set(task.dicts) == {"en", *languages(4)}
    assert all(dictionary is task.dicts["en"] for dictionary in task.dicts.values())
    assert [task.source_dictionary.index(f"__{language}__") for language in ("en", "l00", "l03")] == [34, 35, 38]
    assert len(task.source_dictionary) == 39


def test_another_dictionary_is_still_noticed(tmp_path: Path) -> None:
    folder = make_data(tmp_path / "data", 2)
    (folder / "dict.l01.txt").write_text("other 1\n")
    with pytest.raises(AssertionError, match="Diffrent dictionary are specified"):
        tasks.setup_task(configured(folder, 2).task)


def test_a_missing_dictionary_is_named(tmp_path: Path) -> None:
    folder = make_data(tmp_path / "data", 2)
    (folder / "dict.l01.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"dict\.l01\.txt"):
        tasks.setup_task(configured(folder, 2).task)
