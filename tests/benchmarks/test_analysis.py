"""The page of analyses: its commands are commands, and it shows what they printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import analysis
import pytest
from analysis_page import MODELS, SECTIONS, page

from fairseq_depthwise.cli import build_parser


def options(*given: str) -> object:
    return analysis.parse_options(["--corpus", "corpus", *given])


def test_every_command_is_understood() -> None:
    parser = build_parser()
    for section in SECTIONS:
        for command in section.commands_for("de"):
            words = shlex.split(command.partition(" > ")[0])
            assert words[0] == "fairseq-depthwise"
            if words[1] != "generate":  # fairseq's own parser
                parsed = parser.parse_args(words[1:])
                assert parsed.run.__module__.endswith(section.name)


def test_trainings_differ_in_their_model_only() -> None:
    commands = analysis.trainings(options("--layers", "4", "--updates", "100"))
    assert list(commands) == list(MODELS)
    for name, command in commands.items():
        words = shlex.split(command)
        assert words[words.index("--save-dir") + 1] == name
        assert words[words.index("--max-update") + 1] == "100"
    assert "--growth-stages 2:50u,4:50u" in commands["grown"]
    assert "--encoder-layers 4" in commands["depthwise"]
    assert "--encoder-layers" not in commands["grown"]


def test_the_page_has_what_was_printed() -> None:
    names = [name for section in SECTIONS for name in section.shown]
    setup = {
        "corpus": "text", "languages": ("en", "de"), "train": 1000, "valid": 20, "test": 30, "dictionary": 99,
        "layers": 6, "width": 8, "updates": 7, "max-tokens": 9, "seed": 1, "machine": "a machine", "threads": 1,
        "versions": "Python 3",
    }  # fmt: skip
    text = page(setup, {"transformer": "train this"}, lambda name: f"printed by {name}   \n")
    for name in names:
        assert f"```text\nprinted by {name}\n```" in text
    assert "1,000 pairs to train" in text
    assert "train this" in text
    assert "{target}" not in text
    for section in SECTIONS:
        for figure in section.figures.values():
            assert f"(figures/{figure})" in text


def test_a_missing_corpus_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none")
    assert analysis.main(["--corpus", missing, "--work", str(tmp_path / "work")]) == 1
    assert f"--corpus {missing} is no folder" in capsys.readouterr().err
