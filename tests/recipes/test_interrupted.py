"""prepare.sh after SIGKILL and beside itself: the next run finishes, with the same result."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import corpus_mirror
import pytest
from recipe_runs import Work, files_of, kill

#: Training pairs, times two: enough for each step to take a moment.
PAIRS = 1500


@pytest.fixture(scope="module")
def large_mirror(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mirror of Multi30k with more text."""
    return str(corpus_mirror.build(tmp_path_factory.mktemp("large") / "multi30k", "multi30k", train=PAIRS))


@pytest.fixture(scope="module")
def uninterrupted(new_work: Callable[..., Work], large_mirror: str) -> Path:
    """A folder prepared in one go, by one process."""
    work = new_work("multi30k", MIRROR=large_mirror)
    work.run("prepare")
    return work.folder


def data_of(folder: Path) -> dict[str, bytes]:
    """All files of data-bin but the log, which has paths in it."""
    files = files_of(folder / "data-bin")
    return {name: content for name, content in files.items() if not name.endswith(".log")}


def assert_whole(folder: Path, reference: Path) -> None:
    """Every file that has its final name is whole."""
    for name, content in files_of(folder / "text").items():
        if (reference / "text" / name).exists() and not name.endswith(".log"):
            assert content == (reference / "text" / name).read_bytes(), name


def wait_for(appeared: Callable[[], bool], work: Work, what: str) -> None:
    end = time.monotonic() + 120
    while not appeared():
        assert time.monotonic() < end, f"{what} did not begin in {work.folder}"
        time.sleep(0.001)


@pytest.mark.long
def test_killed_at_every_step(new_work: Callable[..., Work], large_mirror: str, uninterrupted: Path) -> None:
    """One preparation, killed with all its processes in each step, by the real interpreter and two processes."""
    work = new_work("multi30k", forked=False, MIRROR=large_mirror, JOBS="2")
    text = work.folder / "text"
    unfinished, scratch = (work.folder / f".{name}.fairseq-unfinished" for name in ("data-bin", "text"))
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("cleaning", lambda: any("train.en" in path.name for path in text.glob("*"))),
        ("learning", lambda: (scratch / "bpe.codes").exists()),
        ("splitting", lambda: (scratch / "train.en").exists()),
        ("binarizing", lambda: any(unfinished.glob("train*.bin"))),
    ]
    for number, (what, began) in enumerate(steps):
        process = work.start("prepare")
        wait_for(began, work, what)
        if number == 0:
            assert f"WORK={work.folder}" in work.run("prepare", status=1).stderr  # a second one at the same time
        kill(process)
        assert not (work.folder / "data-bin").exists()
        assert_whole(work.folder, uninterrupted)
    work.run("prepare")
    assert data_of(work.folder) == data_of(uninterrupted)
    assert_whole(work.folder, uninterrupted)
    assert not list(work.folder.glob("*.fairseq-unfinished"))
