"""Training with the criterion that adds a model's own losses, by the commands that users type."""

from __future__ import annotations

import math
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


#: Architecture -> the option that weighs its penalties, and their names.
PENALTIES = {
    "sdt_transformer": ("--inter-similarity-weight", ["inter_similarity_penalty"]),
    "mute_transformer_sequential": ("--permutation-penalty", ["permutation_penalty_1", "permutation_penalty_2"]),
}


@pytest.mark.parametrize("arch", PENALTIES)
def test_penalties_are_logged_and_count(
    arch: str, run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    """In training and validation, by their weight; and they fall."""
    option, names = PENALTIES[arch]
    result = run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *LEARNING, "--criterion",
        CRITERION, "--label-smoothing", 0, option, 0.5, "--batch-size", 40, "--update-freq", 2, "--max-update", 12,
        "--save-dir", tmp_path, "--tensorboard-logdir", tmp_path / "events",
    )  # fmt: skip
    updates, valid = logged(result.stderr + result.stdout), logged(result.stderr + result.stdout, "valid")[-1]
    assert len(updates) == 12
    for name in names:
        assert 0 < updates[-1][name] < updates[0][name]
        # That of a matrix of permutations which is uniform is 4.
        assert name.startswith("inter") or 3.9 < updates[0][name] < 4
    for log in (updates[0], {name.removeprefix("valid_"): value for name, value in valid.items()}):
        # Losses are logged in bits.
        added = 0.5 * sum(log[name] for name in names) / math.log(2)
        assert log["loss"] == pytest.approx(log["nll_loss"] + added, abs=2e-3)
    written = b"".join(path.read_bytes() for path in (tmp_path / "events" / "train_inner").iterdir())
    assert all(name.encode() in written for name in names)


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
