"""prepare.sh after SIGKILL, after a full disk, and beside itself: the next run finishes, with the same result."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import corpus_mirror
import pytest
from forked_python import ForkedPython
from mirror_server import Fault, MirrorServer
from recipe_runs import Work, ended, files_of, kill

#: Training pairs, times two: enough for each step to take a moment.
PAIRS = 1500


@pytest.fixture(scope="module")
def large_mirror(mirror: MirrorServer) -> str:
    """A mirror of Multi30k with more text."""
    corpus_mirror.build(mirror.folder / "large", "multi30k", train=PAIRS, held_out=12)
    return f"{mirror.url}/large"


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


def test_killed_at_every_step(
    new_work: Callable[..., Work], large_mirror: str, mirror: MirrorServer, uninterrupted: Path
) -> None:
    """One preparation, killed with all its processes in each step, by the real interpreter and two processes."""
    work = new_work("multi30k", forked=False, MIRROR=large_mirror, JOBS="2")
    text, downloads = work.folder / "text", work.folder / "downloads"
    unfinished, scratch = (work.folder / f".{name}.fairseq-unfinished" for name in ("data-bin", "text"))

    def partly(name: str) -> bool:
        """A file is being written, under another name."""
        return any(path.name != name and name in path.name for path in text.glob("*")) and not (text / name).exists()

    mirror.faults["large/train.de.gz"] = Fault(hang_after=5000, times=1)
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("fetching", lambda: (downloads / ".train.de.gz.fairseq-unfinished").exists()),
        ("cleaning", lambda: partly("train.en")),
        ("learning", lambda: (scratch / "bpe.codes").exists()),
        ("splitting", lambda: (scratch / "train.en").exists()),
        ("binarizing", lambda: any(unfinished.glob("train*.bin"))),
    ]
    for what, began in steps:
        process = work.start("prepare")
        wait_for(began, work, what)
        kill(process)
        assert not (work.folder / "data-bin").exists()
        assert_whole(work.folder, uninterrupted)
    assert any(unfinished.iterdir())
    work.run("prepare")
    assert data_of(work.folder) == data_of(uninterrupted)
    assert_whole(work.folder, uninterrupted)
    assert not list(work.folder.glob("*.fairseq-unfinished"))


def test_two_at_once(new_work: Callable[..., Work], large_mirror: str, mirror: MirrorServer) -> None:
    """The second is refused as long as the first runs; a killed one holds nobody up."""
    work = new_work("multi30k", forked=False, MIRROR=large_mirror)
    mirror.faults["large/train.en.gz"] = Fault(hang_after=5000, times=1)
    first = work.start("prepare")
    wait_for(lambda: (work.folder / "downloads" / ".train.en.gz.fairseq-unfinished").exists(), work, "fetching")
    second = work.run("prepare", status=1)
    assert f"WORK={work.folder}" in second.stderr
    kill(first)
    # What it left is enough to see that the lock is gone: these settings are others.
    third = work.run("prepare", status=1, MERGES=7)
    assert "was prepared with" in third.stderr


def test_stale_folders_of_many_languages(prepared: Callable[[str], Work], tmp_path: Path) -> None:
    """What a killed run of opus100 leaves: some pairs binarized, one half, and a data folder that is not whole."""
    whole = prepared("opus100")
    folder = tmp_path / "work"
    shutil.copytree(whole.folder, folder)
    shutil.rmtree(folder / "data-bin")
    binarized = folder / "text" / "binarized"
    (binarized / "en-de").rename(binarized / "en-de.tmp")
    next((binarized / "en-de.tmp").glob("train*.idx")).write_bytes(b"half")
    for stage in ("pieces", "short"):
        (folder / "text" / f"{stage}.train.en-fr.fr").unlink()
    shutil.rmtree(binarized / "en-fr")
    (folder / ".data-bin.fairseq-unfinished").mkdir()
    (folder / ".data-bin.fairseq-unfinished" / "train.en-xx.en.bin").write_bytes(b"of another run")
    Work("opus100", folder, whole.environment).run("prepare")
    assert data_of(folder) == data_of(whole.folder)
    assert not (binarized / "en-de.tmp").exists()


def test_full_disk(
    new_work: Callable[..., Work], large_mirror: str, uninterrupted: Path, forked_python: ForkedPython
) -> None:
    """Writing fails in the middle, here at a size that no file may exceed; the next run finishes."""
    work = new_work("multi30k", forked=False, MIRROR=large_mirror)
    # Archives fit, and text does not.
    failed = ended(work.start("prepare", largest_file=100_000), status=None)
    assert failed.returncode != 0
    assert "train." in failed.stderr
    assert not list((work.folder / "text").glob("train.*"))
    work.environment["PYTHON"] = str(forked_python.python)
    work.run("prepare")
    assert data_of(work.folder) == data_of(uninterrupted)
