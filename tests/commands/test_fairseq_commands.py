"""``train``, ``generate`` and ``interactive``: what is handed on to fairseq, and what is refused before."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import fairseq_depthwise
from fairseq_compat import UserError, versions
from fairseq_depthwise import cli
from fairseq_depthwise.commands import fairseq_commands

FOLDER = str(Path(fairseq_depthwise.__file__).parent)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that fairseq's entry points got instead of running."""
    seen: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["fairseq-depthwise"])
    for module, _, _ in fairseq_commands.COMMANDS.values():
        command = importlib.import_module(f"fairseq_cli.{module}")
        monkeypatch.setattr(command, "cli_main", lambda: seen.append(list(sys.argv)))
    return seen


@pytest.mark.parametrize("name", ["train", "generate", "interactive"])
def test_options_are_handed_on_with_the_plugins_folder(name: str, handed_over: list[list[str]]) -> None:
    assert cli.main([name, "data-bin", "--path", "best.pt", "-s", "de"]) == 0
    assert handed_over == [[f"fairseq-{name}", "--user-dir", FOLDER, "data-bin", "--path", "best.pt", "-s", "de"]]


def test_option_may_come_first(handed_over: list[list[str]]) -> None:
    assert cli.main(["train", "--arch", "transformer", "data-bin"]) == 0
    assert handed_over[0][3:] == ["--arch", "transformer", "data-bin"]


@pytest.mark.parametrize("given", [["--user-dir", FOLDER], [f"--user-dir={FOLDER}"], ["--user-dir", FOLDER + "/"]])
def test_same_folder_is_left_as_given(given: list[str]) -> None:
    assert fairseq_commands.with_user_dir(["data-bin", *given], FOLDER) == ["data-bin", *given]


def test_relative_and_linked_paths_to_the_folder_are_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(FOLDER).parent)
    assert fairseq_commands.with_user_dir(["--user-dir", "fairseq_depthwise"], FOLDER)
    link = tmp_path / "fairseq_depthwise"
    link.symlink_to(FOLDER)
    assert fairseq_commands.with_user_dir(["--user-dir", str(link)], FOLDER)


@pytest.mark.parametrize("given", [["--user-dir", "other/plugin"], ["--user-dir=other/plugin"], ["--user-dir"]])
def test_another_folder_is_refused(given: list[str]) -> None:
    with pytest.raises(UserError, match="is another folder than the installed plugin"):
        fairseq_commands.with_user_dir(["data-bin", *given], FOLDER)


def test_other_fairseq_is_refused_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], handed_over: list[list[str]]
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda name: "0.10.2")
    assert cli.main(["train", "data-bin"]) == 1
    assert handed_over == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fairseq-depthwise: error: fairseq 0.10.2 is installed")
