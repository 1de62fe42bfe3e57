"""Every family and its variants through the commands that users type: trained, resumed, averaged, generated with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from training_states import assert_same_state, bleu4, hypotheses

import fairseq_depthwise  # noqa: F401  # registers the models

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

LSTM, SDT, MUTE = "depthwise_lstm_transformer", "sdt_transformer", "mute_transformer_sequential"
LEARNING = [
    "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100",
    "--max-tokens", "1000", "--cpu", "--no-progress-bar", "--no-epoch-checkpoints", "--share-all-embeddings",
]  # fmt: skip
TRAINING = [
    *LEARNING, "--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1", "--dropout",
    "0.2", "--max-update", "4", "--save-interval-updates", "2",
]  # fmt: skip


def connected(name: str) -> list[str]:
    """Options that let a connection connect both stacks."""
    return ["--encoder-connection", name, "--decoder-connection", name, "--encoder-block-size", "0"]


#: Architecture and options; what draws random numbers in the backward pass or skips layers is among them.
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "two cells": (LSTM, [
        "--decoder-merge", "two-cells", "--max-relative-positions", "4", "--relative-position-terms", "key-value",
        "--log-gates",
    ]),
    "concat": (LSTM, [
        "--decoder-merge", "concat", "--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3",
        "--checkpoint-activations",
    ]),
    "rnn, bf16": (LSTM, ["--depthwise-cell", "rnn", "--attention-bias", "--bf16"]),
    "sdt, hyper": (SDT, [
        *connected("hyper"), "--connection-unit", "sub-layer", "--hyper-manifold", "--hyper-streams", "2",
    ]),
    "sdt, value-residual": (SDT, [*connected("value-residual"), "--checkpoint-activations"]),
    "mute": (MUTE, []),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_trained_resumed_averaged_and_generated_with(
    name: str, run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Four updates with dropout; what a training stopped at the second would save, the whole one has saved there."""
    (arch, options), whole, parts = VARIANTS[name], tmp_path / "whole", tmp_path / "parts"

    def train(folder: Path) -> str:
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *TRAINING, *options,
            "--save-dir", folder, "--log-format", "simple",
        )  # fmt: skip
        return result.stderr + result.stdout

    log = train(whole)
    assert re.search(r"'valid' subset \| loss [\d.]+ ", log)
    assert ("| encoder_forget_gate " in log) == ("--log-gates" in options)
    parts.mkdir()
    shutil.copy(whole / "checkpoint_1_2.pt", parts / "checkpoint_last.pt")
    assert "Loaded checkpoint" in train(parts)
    assert_same_state(whole / "checkpoint_last.pt", parts / "checkpoint_last.pt")

    inputs = [whole / "checkpoint_1_2.pt", whole / "checkpoint_1_4.pt"]
    run_command("fairseq-depthwise", "average", "--output", tmp_path / "mean.pt", *inputs)
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"
    generated = run_command(
        "fairseq-generate", copy_reverse_data, "--user-dir", plugin, "--path", tmp_path / "mean.pt", "--cpu", "--beam",
        2, "--max-len-b", 8,
    )  # fmt: skip
    assert len(hypotheses(generated.stdout)) == 40


#: The rate falls to nothing, so that no noise of the last updates stays in the model.
FALLING = [
    "--max-tokens", "500", "--max-update", "360", "--lr-scheduler", "polynomial_decay", "--total-num-update", "360",
    "--warmup-updates", "30", "--save-interval", "100", "--disable-validation", "--dropout", "0",
    "--attention-dropout", "0", "--activation-dropout", "0", "--label-smoothing", "0", "--criterion",
    "label_smoothed_cross_entropy_with_auxiliary",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_copy_and_reverse_is_memorized(
    run_command: RunCommand, copy_reverse_data: Path, copy_reverse_text: Path,
    tiny_model_options: Callable[[str], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(LSTM), *LEARNING, *FALLING,
        "--decoder-merge", "two-cells", "--save-dir", tmp_path,
    )  # fmt: skip
    result = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", tmp_path / "checkpoint_last.pt",
        "--gen-subset", "train", "--beam", 4, "--quiet", "--cpu",
    )  # fmt: skip
    assert bleu4(result.stdout) >= 99
    sources, targets = ((copy_reverse_text / f"train.{side}").read_text().splitlines()[:8] for side in ("src", "tgt"))
    model = ARCH_MODEL_REGISTRY[LSTM].from_pretrained(str(tmp_path), "checkpoint_last.pt", str(copy_reverse_data))
    assert sum(one == other for one, other in zip(model.translate(sources, beam=4), targets, strict=True)) >= 7
