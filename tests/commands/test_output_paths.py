"""Every option that names an output, with every path that is none: one sentence, and all that was there is still."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairseq_compat.files import atomic_write
from fairseq_depthwise import cli

#: What is at each path, as ``tree`` makes it, is the user's.
NO_OUTPUT = (
    "", ".", "..", "full", "full/", "full/.", "empty", "notes", "notes/x", "nowhere/x", "to-notes", "to-full/",
    "to-nothing", "pipe", "/dev/null",
)  # fmt: skip

#: Command lines, in which PATH is the output.
COMMANDS = {
    "export": "export notes PATH",
    "average": "average notes --output PATH",
    "grow": "grow notes PATH --layers 4",
    "translate": "translate notes input --output PATH",
    "report": "report full --output PATH",
    "similarity": "similarity notes --data full --output PATH",
    "gates": "gates notes --data full --output PATH",
    "units": "units notes --data full --output PATH",
    "units' attention": "units notes --data full --sentence a --attention-output PATH",
    "probe": "probe notes --data full --output PATH",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Things of a user's, of every kind; the folder in which commands run is among them."""
    home = tmp_path / "home"
    (home / "full" / "hypotheses").mkdir(parents=True)
    (home / "empty").mkdir()
    contents = {
        "notes": "mine", "input": "w0", "full/config.json": "{}", "full/probe.json": "{}", "full/train.en": "hello",
        "full/hypotheses/none.txt": "mine", "notes.tmp": "mine", "full.tmp": "mine", "full.before": "mine",
    }  # fmt: skip
    for name, text in contents.items():
        (home / name).write_text(text)
    (home / "to-notes").symlink_to("notes")
    (home / "to-full").symlink_to("full")
    (home / "to-nothing").symlink_to("nothing")
    os.mkfifo(home / "pipe")
    monkeypatch.chdir(home)
    return home


def contents(folder: Path) -> dict[str, object]:
    """All that is in a folder: kind, time of the last change, and content."""
    found: dict[str, object] = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        inside = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, inside)
    return found


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_path_that_is_none_of_its_outputs_is_touched(
    command: str, force: bool, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = {"pipe", "/dev/null"} if command == "translate" else set()
    replaced = {"notes"} if force and command not in ("export", "probe") else set()
    # A probe may work in an empty folder.
    welcome = {"empty"} if command == "probe" else set()
    before = contents(tree)
    for path in NO_OUTPUT:
        if path in streams | replaced | welcome:
            continue
        arguments = [path if word == "PATH" else word for word in COMMANDS[command].split()]
        assert cli.main([*arguments, *(["--force"] if force else [])]) == 1, path
        captured = capsys.readouterr()
        assert captured.err.startswith("fairseq-depthwise: error: ")
        assert captured.out == ""
        assert contents(tree) == before, path


@pytest.mark.parametrize(
    "command",
    [
        "average a notes --output notes",
        "grow notes notes --layers 4",
        "translate a input --output ./input",
        "translate a input --bpe-codes notes --output notes",
        "translate a input --data run --output run/dict.src.txt",
        "translate run input --output run/checkpoint_best.pt",
        "translate exported input --output exported/config.json",
        "translate exported/model.safetensors input --output exported/config.json",
        "export exported exported",
        "report run --output run/train.log",
        "gates notes --data full --output notes",
    ],
)
def test_what_is_read_is_not_replaced(command: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also what is read of a folder that is named."""
    (tree / "a").write_text("another")
    for folder, names in (
        ("run", ["checkpoint_best.pt", "dict.src.txt", "train.src-tgt.src.bin"]),
        ("exported", ["model.safetensors", "config.json"]),
    ):
        (tree / folder).mkdir()
        for name in names:
            (tree / folder / name).write_text("mine")
    (tree / "run" / "train.log").write_text('{"loss": 5, "num_updates": 10, "wall": 3}\n')
    before = contents(tree)
    assert cli.main([*command.split(), "--force"]) == 1
    assert "give another name" in capsys.readouterr().err
    assert contents(tree) == before


def test_what_another_process_writes_is_refused_at_once(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a model is loaded: "notes" is none."""
    with atomic_write("new"):
        assert cli.main(["translate", "notes", "input", "--output", "new"]) == 1
    assert "new is being written by another process" in capsys.readouterr().err
