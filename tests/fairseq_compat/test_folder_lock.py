"""One process at a time in a folder, and the next one as soon as the first has ended, however it did."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairseq_compat import UserError, folder_lock
from fairseq_compat.folder_lock import NAME, locked_folder


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "PATIENCE", 0.0)


@contextmanager
def holder(folder: Path, *, child: bool = False) -> Iterator[int]:
    """A process that holds the lock, and perhaps has forked another one that does nothing; gives its number."""
    ready, say = os.pipe()
    process = os.fork()
    if process == 0:
        with locked_folder(str(folder), "--save-dir"):
            if child and os.fork() == 0:
                os.write(say, b"%d" % os.getpid())
            elif not child:
                os.write(say, b"0")
            signal.pause()
        os._exit(0)
    os.close(say)
    forked = int(os.read(ready, 20))
    os.close(ready)
    try:
        yield process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if forked:
            os.kill(forked, signal.SIGKILL)


def test_the_sentence_for_the_second_process_names_the_first(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_last.pt").touch()
    named = f"^--save-dir {tmp_path} is in use: process {{}} on .* since 2"
    with holder(tmp_path) as process, pytest.raises(UserError, match=named.format(process)):  # noqa: SIM117
        with locked_folder(str(tmp_path), "--save-dir"):
            raise AssertionError
    assert sorted(os.listdir(tmp_path)) == [NAME, "checkpoint_last.pt"]


def test_a_killed_process_holds_nothing_though_one_it_forked_lives(tmp_path: Path) -> None:
    with holder(tmp_path, child=True) as process:
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        with locked_folder(str(tmp_path), "--save-dir"):
            assert str(os.getpid()) in (tmp_path / NAME).read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == []


def test_the_lock_goes_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked_folder(str(tmp_path / "new" / "folder"), "--save-dir"):
        raise KeyError
    assert os.listdir(tmp_path / "new" / "folder") == []


def test_a_file_that_the_first_removes_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockf = fcntl.lockf

    def removed_first(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        os.remove(tmp_path / NAME)
        lockf(descriptor, operation)

    monkeypatch.setattr(fcntl, "lockf", removed_first)
    with locked_folder(str(tmp_path), "--save-dir"):
        assert str(os.getpid()) in (tmp_path / NAME).read_text(encoding="utf-8")


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with locked_folder(str(tmp_path), "--save-dir"):
        assert os.listdir(tmp_path) == []
    assert "No locks available" in caplog.text


@pytest.mark.parametrize(
    ("made", "reason"), [("folder", "Is a directory"), ("link", "Too many levels of symbolic links"), ("file", "")]
)
def test_what_is_no_place_for_a_lock(made: str, reason: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("mine", encoding="utf-8")
    folder = text if made == "file" else tmp_path
    if made == "folder":
        (folder / NAME).mkdir()
    elif made == "link":
        (folder / NAME).symlink_to(text)
    expected = f"--save-dir {folder} cannot be written: {reason}" if reason else f"--save-dir {text} is a file"
    with pytest.raises(UserError, match=expected), locked_folder(str(folder), "--save-dir"):
        raise AssertionError
    assert text.read_text(encoding="utf-8") == "mine"


def test_a_folder_without_name() -> None:
    with pytest.raises(UserError, match="--save-dir '' cannot be written"), locked_folder("", "--save-dir"):
        raise AssertionError
