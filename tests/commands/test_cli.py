"""The console command: help, statuses, and which stream says what."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys

import pytest

from fairseq_compat import UserError
from fairseq_depthwise import cli
from fairseq_depthwise.commands import doctor
from fairseq_depthwise.commands.parsers import positive_int

SUBCOMMANDS = (
    "doctor", "train", "generate", "interactive", "translate", "export", "average", "inspect", "grow", "params",
    "units", "probe", "similarity", "gates", "score", "compare", "report",
)  # fmt: skip


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for name in SUBCOMMANDS:
        assert f"\n    {name}" in out


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_a_subcommand_ends_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "-h"])
    assert ended.value.code == 0
    assert f"example:\n  fairseq-depthwise {name}" in capsys.readouterr().out


@pytest.mark.parametrize("given", [[], ["no-such-subcommand"], ["doctor", "--no-such-option"], ["average"]])
def test_wrong_use_is_status_2_on_stderr(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(given)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: fairseq-depthwise")


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
    "given", ["translate a.pt x --no-such y", "translate --data bin", "average a.pt b.pt", "export a.pt --data bin"]
)
def test_files_after_options_change_no_other_rule(given: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(given.split())
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("the file is empty"), "the file is empty"),
        (FileNotFoundError(errno.ENOENT, "No such file", "best.pt"), "best.pt does not exist"),
        (PermissionError(errno.EACCES, "Permission denied", "best.pt"), "Permission denied: 'best.pt'"),
    ],
)
def test_bad_input_is_status_1_and_one_line(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(doctor.diagnosis, "diagnose", fail)
    assert cli.main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("fairseq-depthwise: error: ")
    assert said in line


def test_error_that_names_no_file_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("a-socket-that-is-not-there")

    monkeypatch.setattr(doctor.diagnosis, "diagnose", connect)
    with pytest.raises(FileNotFoundError):
        cli.main(["doctor"])


def test_module_is_the_command_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fairseq_depthwise", "average", "--output", "x.pt", "no-such-file.pt"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert "no-such-file.pt does not exist" in result.stderr


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("20", 20)])
def test_whole_numbers_from_one_up(text: str, number: int) -> None:
    assert positive_int(text) == number


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "two", " 3"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="is not a whole number of at least 1"):
        positive_int(text)
