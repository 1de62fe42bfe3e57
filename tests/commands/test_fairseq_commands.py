"""``train``, ``generate`` and ``interactive``: what is handed on to fairseq, and what is refused before."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import fairseq_depthwise
from fairseq_compat import UserError
from fairseq_depthwise import cli
from fairseq_depthwise.commands import fairseq_commands

FOLDER = str(Path(fairseq_depthwise.__file__).parent)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that fairseq's entry points got instead of running."""
    seen: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["fairseq-depthwise"])
    for module in fairseq_commands.FAIRSEQ_COMMANDS:
        command = importlib.import_module(f"fairseq_cli.{module}")
        monkeypatch.setattr(command, "cli_main", lambda: seen.append(list(sys.argv)))
    return seen


@pytest.mark.parametrize("name", ["train", "generate", "interactive"])
@pytest.mark.parametrize("options", ["data-bin --path best.pt -s de", "--arch transformer data-bin"])
def test_options_are_handed_on_with_the_plugins_folder(name: str, options: str, handed_over: list[list[str]]) -> None:
    assert cli.main([name, *options.split()]) == 0
    assert handed_over == [[f"fairseq-{name}", "--user-dir", FOLDER, *options.split()]]


def test_same_folder_is_left_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(FOLDER).parent)
    link = tmp_path / "fairseq_depthwise"
    link.symlink_to(FOLDER)
    for path in (FOLDER, FOLDER + "/", "fairseq_depthwise", str(link)):
        for given in (["--user-dir", path], [f"--user-dir={path}"]):
            assert fairseq_commands.with_user_dir(["data-bin", *given], FOLDER) == ["data-bin", *given]


@pytest.mark.parametrize("given", [["--user-dir", "other/plugin"], ["--user-dir=other/plugin"], ["--user-dir"]])
def test_another_folder_is_refused(given: list[str]) -> None:
    with pytest.raises(UserError, match="--user-dir"):
        fairseq_commands.with_user_dir(["data-bin", *given], FOLDER)
