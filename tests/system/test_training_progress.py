"""What ``fairseq-depthwise train`` writes into ``--save-dir`` and prints, and what the user's options change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

RunCommand = Callable[..., CompletedProcess[str]]
BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_a": 0, "max_len_b": 9}']


@pytest.fixture
def train(run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]]) -> Any:
    """``train(*options)`` is what a short training prints on stdout."""

    def run(*options: object) -> str:
        return run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options("depthwise_lstm_transformer"), "--cpu",
            "--optimizer", "adam", "--lr", 0.005, "--batch-size", 64, "--log-interval", 5, "--no-epoch-checkpoints",
            *options,
        ).stdout  # fmt: skip

    return run


def test_a_training_that_is_resumed(train: Any, run_command: RunCommand, tmp_path: Path) -> None:
    printed = train("--max-epoch", 2, *BLEU, "--save-dir", tmp_path / "run")
    updates = re.findall(r"update (\d+) .*loss [\d.]+ .*tokens/s .*(\d+:\d\d:\d\d) left", printed)
    assert [update for update, _ in updates] == ["5", "10", "15", "20"]
    assert updates[0][1] > updates[-1][1]
    assert len(re.findall(r"valid.*BLEU", printed)) == len(re.findall("translation: ", printed)) == 2
    assert '"loss"' not in printed

    lines = (tmp_path / "run" / "train.log").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["num_updates"] for entry in entries if "num_updates" in entry] == ["5", "10", "15", "20"]
    assert sum("valid_bleu" in entry for entry in entries) == 2

    again = train("--max-epoch", 3, "--save-dir", tmp_path / "run", "--log-format", "json")
    assert '"num_updates": "25"' in again
    assert " left" not in again
    (run,) = json.loads(run_command("fairseq-depthwise", "report", tmp_path / "run", "--json").stdout)["runs"]
    assert run["series"]["train_inner"]["loss"]["updates"] == [5, 10, 15, 20, 25, 30]
    assert run["summary"]["continued_after"] == [20]
    assert run["summary"]["trained_on"] == "1 CPU, fp32"


def test_the_users_own_log(train: Any, tmp_path: Path) -> None:
    options = ["--max-update", 5, "--save-dir", tmp_path / "run"]
    simple = train(*options, "--log-file", tmp_path / "simple.log", "--log-format", "simple")
    log = (tmp_path / "simple.log").read_text(encoding="utf-8")
    for shown in (simple, log):
        assert re.search(r"epoch 001: +5 / \d+ loss=", shown)
    train(*options[:2], "--no-save", "--log-file", tmp_path / "own.log")
    assert "valid_loss" in (tmp_path / "own.log").read_text(encoding="utf-8")
    assert not (tmp_path / "run" / "train.log").exists()
