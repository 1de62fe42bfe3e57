"""The learning rate of every update, as the training commands log it, against the closed form."""

from __future__ import annotations

import subprocess
import textwrap
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
        "--max-tokens", 700, "--no-epoch-checkpoints", "--log-interval", 1, "--log-format", "json",
    ]  # fmt: skip


def test_restarts_on_the_command_line_and_after_a_resume(
    run_command: RunCommand, refusal: Callable[..., str], options: list[object], tmp_path: Path
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
    sentence = refusal("fairseq-depthwise", "train", *options, "--restart-updates", "12,8", "--save-dir", tmp_path)
    assert sentence.startswith("--restart-updates '12,8'")


def test_restarts_in_a_hydra_file(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"
    (tmp_path / "restarts.yaml").write_text(
        textwrap.dedent(f"""
        common: {{user_dir: {plugin}, cpu: true, log_format: json, log_interval: 1}}
        task: {{_name: translation, data: {copy_reverse_data}}}
        model: {{_name: {ARCH}, encoder_layers: 1, decoder_layers: 1, encoder_embed_dim: 16, decoder_embed_dim: 16,
                encoder_attention_heads: 2, decoder_attention_heads: 2, depthwise_hidden_dim: 32}}
        criterion: {{_name: cross_entropy}}
        optimizer: {{_name: adam}}
        lr_scheduler: {{_name: inverse_sqrt_restart, warmup_updates: {WARMUP}, restart_updates: "8,12"}}
        dataset: {{max_tokens: 700}}
        optimization: {{max_update: {UPDATES}, lr: [{PEAK}]}}
        checkpoint: {{save_dir: {tmp_path}/run, no_epoch_checkpoints: true}}
        """),
        encoding="utf-8",
    )
    result = run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "restarts", cwd=tmp_path)
    assert logged_rates(result) == pytest.approx(expected_rates(), rel=1e-4)
