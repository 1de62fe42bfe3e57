"""The entry points of fairseq's commands: one sentence and status 1 for the user's mistakes, else as before."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from fairseq_compat import UserError, import_hook
from fairseq_compat.patches.options.readable_errors import adjust


def patched_command(error: BaseException | None) -> Any:
    module: Any = ModuleType("fairseq_cli.eval_lm")

    def cli_main(modify_parser: Any = None) -> str:
        """fairseq's docstring."""
        if error is not None:
            raise error
        return f"result, {modify_parser}"

    module.cli_main = cli_main
    for _ in adjust(module):
        pass
    return module.cli_main


def test_mistake_is_one_sentence_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        patched_command(UserError("--path is missing"))()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "fairseq-eval-lm: error: --path is missing\n")


def test_success_passes_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert patched_command(None)("given") == "result, given"
    assert capsys.readouterr().err == ""


def test_interruption_is_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        patched_command(KeyboardInterrupt())()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_every_command_of_fairseq_is_wrapped() -> None:
    for name, patches in import_hook.PATCHES.items():
        if "options.readable_errors" in patches:
            assert hasattr(importlib.import_module(name).cli_main, "__wrapped__"), name
