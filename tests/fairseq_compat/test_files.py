"""A reader finds the old file or the whole new one: after an exception, on a full disk, after a kill."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from fairseq_compat import UserError, checkpoints
from fairseq_compat.files import copied_whole, written_whole

OLD = b"what was there before"


class InterruptedWritingError(Exception):
    """Stands for any defect in the middle of writing."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.write_bytes(OLD)
    return path


def assert_untouched(target: Path) -> None:
    assert target.read_bytes() == OLD
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_new_content_replaces_the_old(target: Path) -> None:
    with written_whole(target) as file:
        file.write(b"new")
        assert target.read_bytes() == OLD
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["target"]


def test_path_without_a_folder_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with written_whole("name") as file:
        file.write(b"new")
    assert (tmp_path / "name").read_bytes() == b"new"


@pytest.mark.parametrize("error", [InterruptedWritingError, KeyboardInterrupt, SystemExit])
def test_failure_in_the_middle_keeps_the_old_file(error: type[BaseException], target: Path) -> None:
    with pytest.raises(error), written_whole(target) as file:  # noqa: PT012  # the failure is in the block
        file.write(b"half")
        raise error
    assert_untouched(target)


def test_failure_without_an_old_file_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InterruptedWritingError), written_whole(tmp_path / "target") as file:  # noqa: PT012  # the failure is in the block
        file.write(b"half")
        raise InterruptedWritingError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space is left on the disk"),
        (errno.EDQUOT, "no space is left on the disk"),
        (errno.EACCES, "the folder is not writable"),
        (errno.EROFS, "the folder is not writable"),
        (errno.EFBIG, "ulimit"),
    ],
)
def test_state_of_the_machine_is_one_sentence(number: int, said: str, target: Path) -> None:
    with pytest.raises(UserError, match=f"cannot write {target}: .*{said}.*unchanged"), written_whole(target):
        raise OSError(number, os.strerror(number))
    assert_untouched(target)


def test_failing_flush_to_the_disk_is_noticed(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="no space"), written_whole(target) as file:
        file.write(b"new")
    assert_untouched(target)


def test_content_is_on_the_disk_before_it_gets_its_name(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("flush"), real_sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("rename"), real_replace(*paths)))
    with written_whole(target) as file:
        file.write(b"new")
    assert steps == ["flush", "rename", "flush"]


def test_defect_while_a_disk_error_is_handled_is_still_a_full_disk(target: Path) -> None:
    """``torch.save`` reports it that way."""
    with pytest.raises(UserError, match="no space"), written_whole(target):  # noqa: PT012  # the failure is in the block
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError:
            raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904  # as torch.save raises it
    assert_untouched(target)


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_missing_folder_is_named(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / folder / "target"
    with pytest.raises(UserError, match=f"cannot write {path}: its folder does not exist"), written_whole(path):
        pass


def test_copy_is_the_original(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(100_000))
    copied_whole(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_copy_that_fails_in_the_middle_keeps_the_old_file(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    def full(source: IO[bytes], copy: IO[bytes], length: int = 0) -> None:
        copy.write(source.read(10))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(UserError, match="no space"):
        copied_whole(source, target)
    assert target.read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_copy_of_a_missing_file_says_so_and_keeps_the_old(target: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        copied_whole(target.parent / "nowhere", target)
    assert_untouched(target)


def test_state_that_cannot_be_pickled_keeps_the_old_checkpoint(target: Path) -> None:
    with pytest.raises(Exception, match="pickle"):
        checkpoints.save({"weight": torch.ones(3), "function": lambda: None}, target)
    assert_untouched(target)


# The limits of a real process.

SAVE_UNDER_A_LIMIT = """
import resource, signal, sys
import torch
from fairseq_compat import checkpoints
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    checkpoints.save({"weight": torch.zeros(int(sys.argv[2]))}, sys.argv[1])
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize("size", [100_000, 49_990])  # fails in the middle, or only when the end is written
def test_checkpoint_larger_than_the_limit_keeps_the_old(size: int, target: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SAVE_UNDER_A_LIMIT, target, str(size)], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"UserError: cannot write {target}: the file would be larger than the limit")
    assert len(result.stdout.splitlines()) == 1
    assert_untouched(target)


WRITE_FOR_EVER = """
import sys
from fairseq_compat.files import written_whole
with written_whole(sys.argv[1]) as file:
    for number in range(10**9):
        file.write(b"n" * 65536)
        file.flush()
        if number == 3:
            print("writing", flush=True)
"""


def test_killed_writer_leaves_the_old_file_whole(target: Path) -> None:
    writer: Any = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, target], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "writing\n"
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    assert target.read_bytes() == OLD
    # It bears no name that anything reads, and the next writer of the same file removes it.
    (left,) = [path.name for path in target.parent.iterdir() if path != target]
    assert re.fullmatch(r"\.target\.[0-9a-f]{16}\.fairseq-unfinished", left)
    with written_whole(target) as file:
        file.write(b"new")
    assert os.listdir(target.parent) == ["target"]
