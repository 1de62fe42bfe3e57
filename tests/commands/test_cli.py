"""The console command: help, statuses, and which stream says what."""

from __future__ import annotations

import signal

import pytest

from fairseq_depthwise import cli
from fairseq_depthwise.commands import fairseq_commands, params

SUBCOMMANDS = (
    "doctor", "prepare", "train", "generate", "interactive", "translate", "export", "average", "inspect", "grow",
    "params", "units", "probe", "similarity", "gates", "score", "compare", "report", "serve",
)  # fmt: skip


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_lists_a_subcommand_and_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in ((["--help"], f"\n    {name}"), ([name, "-h"], f"example:\n  fairseq-depthwise {name}")):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "name", "files"),
    [
        ("translate a.pt --data bin x", "files", ["x"]),
        ("translate --data bin a.pt x --beam 5 -", "files", ["x", "-"]),
        ("translate a.pt --beam 5", "files", ["-"]),
        ("average a.pt --output mean.pt b.pt", "inputs", ["a.pt", "b.pt"]),
        ("compare a --ref r b --json c", "systems", ["b", "c"]),
        ("similarity a.pt --data bin b.pt", "checkpoints", ["a.pt", "b.pt"]),
        ("score --ref r -- -h.txt", "hypotheses", ["-h.txt"]),
        ("average --output mean.pt -- a.pt -x.pt", "inputs", ["a.pt", "-x.pt"]),
        ("compare --ref r a b -- --json", "systems", ["b", "--json"]),
    ],
)
def test_files_may_follow_options(given: str, name: str, files: list[str]) -> None:
    assert getattr(cli.build_parser().parse_args(given.split()), name) == files


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("score --reff r h", "--ref"),
        ("average --ouput=mean.pt a.pt b.pt", "--output"),  # --output is missing, too
        ("translate a.pt --beams 5", "--beam"),
    ],
)
def test_an_option_that_is_not_known_is_answered_with_one_that_is(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(given.split())
    assert ended.value.code == 2
    assert f" {meant} " in capsys.readouterr().err.splitlines()[-1].partition("did you mean")[2]


@pytest.mark.parametrize("command", ["params", "train data-bin"])
def test_an_interrupt_is_one_word(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(options: object) -> int:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was ignored")

    monkeypatch.setattr(params, "run", interrupt)
    monkeypatch.setattr(fairseq_commands, "run", interrupt)
    assert cli.main(command.split()) == 130
    assert capsys.readouterr().err == "interrupted\n"
