"""What the tests of commands share: data, and running a command within the tests' process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from probe_checkpoints import data_in

from fairseq_depthwise import cli


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data folder with parts train, valid and test, and one that is empty."""
    return data_in(tmp_path_factory.mktemp("commands") / "data-bin", empty=[])


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``printed(*words)`` runs a command line that must succeed, and returns what it prints on stdout."""

    def run(*words: object) -> str:
        capsys.readouterr()
        assert cli.main(list(map(str, words))) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def document(printed: Callable[..., str]) -> Callable[..., Any]:
    """``document(*words)`` is what a command line prints with ``--json``."""
    return lambda *words: json.loads(printed(*words, "--json"))


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``refusal(*words)`` runs a command line that must fail with one sentence on stderr, and returns the sentence."""

    def run(*words: object) -> str:
        capsys.readouterr()
        assert cli.main(list(map(str, words))) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = [line for line in captured.err.splitlines() if not line.startswith(("reading ", "  "))]
        start, _, sentence = line.partition(": error: " if ": error: " in line else ": ")
        assert start.split()[0] == "fairseq-depthwise", line
        return sentence

    return run
