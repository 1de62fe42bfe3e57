"""Folders that are replaced as a whole, or worked in: what was there before, what others put in, kills, two at once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_compat.files import NewFile, atomic_write
from fairseq_compat.outputs import MARKER, begin_folder, folder_written_whole, output_file, output_folder


def write(place: Path, content: str, *, force: bool = False) -> None:
    """As a command does that writes a folder."""
    checked = output_folder("OUT", str(place), "export", force=force)
    with folder_written_whole(checked, "export", replace=force) as aside:
        Path(aside, "config.json").write_text(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_folder_is_replaced_by_its_like_and_nothing_beside_it_is_touched(tmp_path: Path) -> None:
    for name in ("out.tmp", "out.before"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    write(tmp_path / "out", "one")
    marker = json.loads((tmp_path / "out" / MARKER).read_text())
    assert (marker["program"], marker["kind"]) == ("fairseq-depthwise", "export")
    assert marker["files"] == ["config.json", MARKER]
    write(tmp_path / "out", "two", force=True)
    assert (tmp_path / "out" / "config.json").read_text() == "two"
    assert names(tmp_path) == ["out", "out.before", "out.tmp"]
    assert (tmp_path / "out.before" / "mine").read_text() == (tmp_path / "out.tmp" / "mine").read_text() == "mine"


def test_a_folder_of_another_program_or_with_a_link_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write(place, "one")
    (place / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="contains 'link'"):
        write(place, "two", force=True)
    (place / "link").unlink()
    (place / MARKER).write_text('{"program": "other", "kind": "export", "files": ["config.json", "made_by.json"]}')
    with pytest.raises(UserError, match="is no export"):
        write(place, "two", force=True)
    assert (place / "config.json").read_text() == "one"


def test_what_a_user_adds_meanwhile_is_kept(tmp_path: Path) -> None:
    """Between the question whether the folder may be replaced and its replacement, hours may pass."""
    write(tmp_path / "out", "one")
    with (
        pytest.raises(UserError, match="contains 'notes'"),
        folder_written_whole(str(tmp_path / "out"), "export", replace=True),
    ):
        (tmp_path / "out" / "notes").write_text("mine")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["config.json", MARKER, "notes"]


@pytest.mark.parametrize("by", ["file", "folder"])
def test_what_has_come_since_is_kept(by: str, tmp_path: Path) -> None:
    place = tmp_path / "out"
    with pytest.raises(OSError, match="out"), folder_written_whole(str(place), "export"):  # noqa: PT012  # it raises on leaving
        if by == "file":
            place.write_text("mine")
        else:
            place.mkdir()
            (place / "mine").write_text("mine")
    assert (place if by == "file" else place / "mine").read_text() == "mine"
    assert names(tmp_path) == ["out"]
    file = output_file("--output", str(tmp_path / "page"))
    assert isinstance(file, NewFile)
    with pytest.raises(UserError, match=str(tmp_path / "page")), atomic_write(file):
        (tmp_path / "page").write_text("mine")
    assert (tmp_path / "page").read_text() == "mine"
    assert names(tmp_path) == ["out", "page"]


def test_failure_leaves_the_old_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "out", "one")
    for error in (KeyboardInterrupt, OSError(28, "full")):
        with (  # noqa: PT012  # the failure is in the block
            pytest.raises((KeyboardInterrupt, UserError)),
            folder_written_whole(str(tmp_path / "out"), "export", replace=True) as aside,
        ):
            Path(aside, "config.json").write_text("half")
            raise error
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "config.json").read_text() == "one"


def write_until_killed(place: Path, at: int) -> None:
    """Replace a folder in a process that is killed at the moment of this number at which it changes something."""
    if (child := os.fork()) == 0:
        moments = 0

        def die(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal moments
            if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "ctypes.dlsym"):
                moments += 1
                if moments == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(die)
        write(place, "new", force=True)
        os._exit(0)
    os.waitpid(child, 0)


def test_a_process_that_is_killed_leaves_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    place, kills = tmp_path / "out", 0
    write(place, "old")
    while (place / "config.json").read_text() == "old":
        kills += 1
        write_until_killed(place, kills)
    assert (place / "config.json").read_text() == "new"
    assert kills > 5


def test_a_folder_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "out", "one")
    read = [str(tmp_path / "out" / "config.json")]
    with pytest.raises(UserError, match="contains the input"):
        output_folder("OUT", str(tmp_path / "out"), "export", force=True, inputs=read)


def test_streams_are_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(output_file("--output", str(tmp_path / "pipe"), stream=True)) as file:
        file.write(b"text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert names(tmp_path) == ["pipe"]
    with atomic_write("/dev/null") as file:
        file.write(b"text")
    assert not os.path.isfile("/dev/null")
    assert output_file("--output", "/dev/stdout", stream=True) == "/dev/stdout"


def test_a_folder_is_worked_in_again_and_a_strangers_is_not(tmp_path: Path) -> None:
    place = begin_folder("--output", f"{tmp_path}/probe/", "probe")
    (tmp_path / "probe" / "rows").write_text("one")
    assert begin_folder("--output", place, "probe") == str(tmp_path / "probe")
    with pytest.raises(UserError, match=r"--output .* exists and is no export"):
        begin_folder("--output", place, "export")
