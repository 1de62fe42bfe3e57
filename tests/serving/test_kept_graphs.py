"""The folder of kept graphs: made once and whole, and nobody else's."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.serving.kept_graphs import VARIABLE, kept_folder

Keep = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path / "fairseq-depthwise" / "graphs"


def write(folder: Path) -> None:
    (folder / "part").write_bytes(b"graph")


def test_graphs_are_made_once_for_what_they_depend_on(cache: Path) -> None:
    model, said, made = build_tiny("sdt_transformer"), list[str](), list[Path]()

    def make(folder: Path) -> None:
        made.append(folder)
        write(folder)

    folder = kept_folder("graphs", [model], "about", make, said.append)
    assert (folder / "part").read_bytes() == b"graph"
    assert kept_folder("graphs", [model], "about", make, said.append) == folder
    assert len(made) == len(said) == 1
    others = {kept_folder("graphs", [model], "other", make, said.append)}
    next(model.parameters()).data[0, 0] += 1
    others.add(kept_folder("graphs", [model], "about", make, said.append))
    assert len(others | {folder}) == len(made) == 3


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), UserError("no"), KeyboardInterrupt()], ids=repr)
def test_what_fails_leaves_nothing(error: BaseException, cache: Path) -> None:
    def make(folder: Path) -> None:
        write(folder)
        raise error

    with pytest.raises((UserError, KeyboardInterrupt), match=r"no|^$"):
        kept_folder("graphs", [build_tiny("sdt_transformer")], "about", make, print)
    assert list(cache.iterdir()) == []


def test_another_process_may_be_faster(cache: Path) -> None:
    model, others = build_tiny("sdt_transformer"), list[Path]()

    def make(folder: Path) -> None:
        write(folder)
        others.append(kept_folder("graphs", [model], "about", write, print))

    assert [kept_folder("graphs", [model], "about", make, print)] == others
    assert list(cache.iterdir()) == others


def test_a_folder_that_others_can_write_to_is_refused(cache: Path) -> None:
    """What is in it would be run."""
    model = build_tiny("sdt_transformer")
    kept_folder("graphs", [model], "about", write, print)
    assert cache.stat().st_mode & 0o077 == 0
    cache.chmod(0o777)
    with pytest.raises(UserError, match=str(cache)):
        kept_folder("graphs", [model], "about", write, print)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    with pytest.raises(UserError, match=VARIABLE):
        kept_folder("graphs", [build_tiny("sdt_transformer")], "about", write, print)
