"""A reader finds the old file or the whole new one: after an exception, on a full disk, after a kill."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from fairseq_compat import UserError, checkpoints
from fairseq_compat.files import UNFINISHED, atomic_write

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


@pytest.mark.parametrize("error", [InterruptedWritingError, KeyboardInterrupt, SystemExit])
def test_failure_in_the_middle_keeps_what_was_there(error: type[BaseException], target: Path) -> None:
    for path in (target, target.with_name("new")):
        with pytest.raises(error), atomic_write(path) as file:  # noqa: PT012  # the failure is in the block
            file.write(b"half")
            raise error
        assert_untouched(target)


def test_a_link_aside_is_not_written_through(target: Path) -> None:
    os.link(target, target.with_name(f".new{UNFINISHED}"))
    with atomic_write(target.with_name("new")) as file:
        file.write(b"new")
    target.with_name("new").unlink()
    assert_untouched(target)


def in_a_fork(run: Callable[[], None]) -> int:
    """Run something in a process of its own, and return that process's number."""
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    return child


@pytest.mark.parametrize("size", [100_000, 49_990])  # fails in the middle, or only when the end is written
def test_checkpoint_larger_than_the_limit_keeps_the_old(size: int, target: Path) -> None:
    def save() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            checkpoints.save({"weight": torch.zeros(size)}, target)
        except UserError as error:
            os._exit(0 if str(target) in str(error) and "too large" in str(error) else 2)

    assert os.waitpid(in_a_fork(save), 0)[1] == 0
    assert_untouched(target)


def test_killed_writer_leaves_the_old_file_whole(target: Path) -> None:
    def write_for_ever() -> None:
        with atomic_write(target) as file:
            while True:
                file.write(b"n" * 65536)
                file.flush()

    writer = in_a_fork(write_for_ever)
    while not any(path.stat().st_size > 200_000 for path in target.parent.iterdir()):
        time.sleep(0.001)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    assert target.read_bytes() == OLD
    # It bears no name that anything reads, and the next writer of the same file takes it over.
    (left,) = [path.name for path in target.parent.iterdir() if path != target]
    assert left == f".target{UNFINISHED}"
    with atomic_write(target) as file:
        file.write(b"new")
    assert os.listdir(target.parent) == ["target"]
    assert target.read_bytes() == b"new"


def test_of_several_writers_one_writes(target: Path) -> None:
    """The others are told so at once."""

    def write(content: bytes) -> None:
        try:
            with atomic_write(target) as file:
                for _ in range(50):
                    file.write(content)
                    file.flush()
                    time.sleep(0.02)
        except UserError as error:
            os._exit(3 if "another process" in str(error) else 2)
        os._exit(0)

    writers = {in_a_fork(partial(write, content)): content for content in (b"a", b"b", b"c")}
    statuses = {writers[writer]: os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers}
    assert sorted(statuses.values()) == [0, 3, 3]
    (first,) = [content for content, status in statuses.items() if status == 0]
    assert target.read_bytes() == first * 50
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_a_new_file_has_the_mode_of_its_writer(kind: str, target: Path) -> None:
    """Whatever lies where it is written."""
    left = target.with_name(f".new{UNFINISHED}")
    if kind == "file":
        left.touch()
        left.chmod(0o666)
    elif kind == "link":
        left.symlink_to(target)
    else:
        os.mkfifo(left)
    before = os.umask(0o077)
    try:
        with atomic_write(target.with_name("new")) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    new = target.with_name("new")
    assert stat.S_IMODE(new.lstat().st_mode) == 0o600
    assert new.read_bytes() == b"new"
    new.unlink()
    assert_untouched(target)
