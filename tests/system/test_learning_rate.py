"""The learning rate of every update, as the training commands log it, against the closed form."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_states import assert_same_state, logged

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

ARCH = "depthwise_lstm_transformer"
PEAK, WARMUP, UPDATES = 5e-3, 4, 16


def expected_rates() -> dict[int, float]:
    """What is logged after each update: the rate of the next one."""
    rates = {update: PEAK * update / WARMUP for update in range(1, WARMUP)}
    for begin, end in ((4, 8), (8, 12), (12, UPDATES + 1)):
        rates.update({update: PEAK * (WARMUP / (WARMUP + update - begin)) ** 0.5 for update in range(begin, end)})
    return rates


def logged_rates(result: subprocess.CompletedProcess[str]) -> dict[int, float]:
    """By number of updates."""
    return {int(update["num_updates"]): update["lr"] for update in logged(result.stderr + result.stdout)}


@pytest.fixture
def options(copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]]) -> list[object]:
    return [
        copy_reverse_data, *tiny_model_options(ARCH), "--share-all-embeddings", "--optimizer", "adam", "--lr", PEAK,
        "--lr-scheduler", "inverse_sqrt_restart", "--warmup-updates", WARMUP, "--criterion", "cross_entropy", "--cpu",
        "--max-tokens", 700, "--no-epoch-checkpoints", "--disable-validation", "--log-interval", 1,
        "--log-format", "json",
    ]  # fmt: skip


def test_restarts_on_the_command_line_and_after_a_resume(
    run_command: RunCommand, options: list[object], tmp_path: Path
) -> None:
    def train(folder: str, updates: int, restarts: str) -> dict[int, float]:
        more = ["--restart-updates", restarts, "--max-update", updates, "--save-dir", tmp_path / folder]
        return logged_rates(run_command("fairseq-depthwise", "train", *options, *more))

    whole = train("whole", UPDATES, "8,12")
    assert whole == pytest.approx(expected_rates(), rel=1e-4)
    parts = train("parts", 10, "8,12")
    assert sorted(parts) == list(range(1, 11))
    # The restart at 8 is in the checkpoint: it holds although the option no longer names it.
    parts.update(train("parts", UPDATES, "12"))
    assert parts == whole
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "parts/checkpoint_last.pt")
