"""The console command: help, statuses, and which stream says what."""

from __future__ import annotations

import errno
import re
import signal
import socket
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from fairseq_compat import UserError
from fairseq_depthwise import cli
from fairseq_depthwise.commands import doctor, fairseq_commands, inspect
from fairseq_depthwise.commands.parsers import positive_int

SUBCOMMANDS = (
    "doctor", "train", "generate", "interactive", "translate", "export", "average", "inspect", "grow", "params",
    "units", "probe", "similarity", "gates", "score", "compare", "report", "serve",
)  # fmt: skip


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_lists_a_subcommand_and_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in ((["--help"], f"\n    {name}"), ([name, "-h"], f"example:\n  fairseq-depthwise {name}")):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "", "no-such-subcommand", "doctor --no-such-option", "average", "translate a.pt x --no-such y",
        "translate --data bin", "average a.pt b.pt", "export a.pt --data bin",
    ],
)  # fmt: skip
def test_wrong_use_is_status_2_on_stderr(words: str, assert_usage_error: Callable[..., None]) -> None:
    assert_usage_error(*words.split())


@pytest.mark.parametrize(
    ("given", "name", "files"),
    [
        ("translate a.pt --data bin x", "files", ["x"]),
        ("translate --data bin a.pt x --beam 5 -", "files", ["x", "-"]),
        ("translate a.pt --beam 5", "files", ["-"]),
        ("average a.pt --output mean.pt b.pt", "inputs", ["a.pt", "b.pt"]),
        ("average --last 3 run --output mean.pt", "inputs", ["run"]),
        ("score a --ref r b --json c", "hypotheses", ["a", "b", "c"]),
        ("compare a --ref r b --json c", "systems", ["b", "c"]),
        ("report a --json b", "runs", ["a", "b"]),
        ("units a.pt --data bin b.pt", "checkpoints", ["a.pt", "b.pt"]),
        ("gates --data bin a.pt --json b.pt", "checkpoints", ["a.pt", "b.pt"]),
        ("similarity a.pt --data bin b.pt", "checkpoints", ["a.pt", "b.pt"]),
    ],
)
def test_files_may_follow_options(given: str, name: str, files: list[str]) -> None:
    assert getattr(cli.build_parser().parse_args(given.split()), name) == files


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (UserError("the file is empty"), "the file is empty"),
        (FileNotFoundError(errno.ENOENT, "No such file", "best.pt"), "best.pt"),
        (PermissionError(errno.EACCES, "Permission denied", "best.pt"), "Permission denied: 'best.pt'"),
    ],
)
def test_bad_input_is_status_1_and_one_line(
    error: Exception, named: str, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(doctor.diagnosis, "diagnose", fail)
    assert named in refusal("doctor")


def test_error_that_nobody_expects_is_a_sentence(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("a-socket-that-is-not-there")

    monkeypatch.setattr(doctor.diagnosis, "diagnose", connect)
    assert re.match(r"FileNotFoundError: .*; the traceback is in \S+\.txt", refusal("doctor"))


def test_module_is_the_command_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fairseq_depthwise", "average", "--output", "x.pt", "no-such-file.pt"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert "no-such-file.pt does not exist" in result.stderr


def test_positive_int() -> None:
    assert [positive_int(text) for text in ("1", "20")] == [1, 20]
    for text in ("0", "-1", "1.5", "", "two", " 3"):
        with pytest.raises(ArgumentTypeError):
            positive_int(text)


@pytest.mark.parametrize("command", ["inspect model.pt", "train data-bin"])
def test_an_interrupt_is_one_word(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(options: object) -> int:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was ignored")

    monkeypatch.setattr(inspect, "run", interrupt)
    monkeypatch.setattr(fairseq_commands, "run", interrupt)
    assert cli.main(command.split()) == 130
    assert capsys.readouterr().err == "interrupted\n"
