"""Training with the criterion that adds a model's own losses, by the commands that users type."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training_states import logged

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

CRITERION = "label_smoothed_cross_entropy_with_auxiliary"
LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "10", "--label-smoothing", "0.1", "--no-epoch-checkpoints", "--log-format", "json",
    "--log-interval", "1", "--cpu",
]  # fmt: skip


def test_two_processes_are_one(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    """An epoch whose last update, and a validation whose last step, leave nothing for the second process."""
    penalty = "permutation_penalty_1"
    given = [
        copy_reverse_data, *tiny_model_options("mute_transformer_sequential"), *LEARNING, "--criterion", CRITERION,
        "--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0, "--permutation-penalty", 0.5,
        "--unit-noise-rate", 0, "--batch-size", 24, "--batch-size-valid", 16, "--max-epoch", 1,
    ]  # fmt: skip
    results = [
        run_command("fairseq-depthwise", "train", *given, "--update-freq", 2, "--save-dir", tmp_path / "one"),
        run_command(
            "torchrun", "--standalone", "--nproc_per_node", 2, "-m", "fairseq_depthwise", "train", *given,
            "--save-dir", tmp_path / "two", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp",
        ),
    ]  # fmt: skip
    updates, valid = ([logged(one.stderr + one.stdout, tag) for one in results] for tag in ("train_inner", "valid"))
    assert [len(run) for run in updates] == [13, 13]
    for runs, prefix in ((updates, ""), (valid, "valid_")):
        for first, second in zip(*runs, strict=True):
            for name in ("loss", "nll_loss", penalty):
                assert first[prefix + name] == pytest.approx(second[prefix + name], abs=2e-3)
    assert updates[0][-1][penalty] < updates[0][0][penalty]
    models = [checkpoints.load_checkpoint(tmp_path / run / "checkpoint_last.pt")["model"] for run in ("one", "two")]
    for key, tensor in models[0].items():
        torch.testing.assert_close(
            tensor, models[1][key], rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )
