"""The Multi-Unit Transformer through the commands that users type."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_states import logged

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "100", "--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1",
    "--max-tokens", "1000", "--cpu", "--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "1",
]  # fmt: skip
SEQUENTIAL = "mute_transformer_sequential"


@pytest.fixture(scope="session")
def train(run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions) -> Callable[..., str]:
    """``train(arch, folder, *options)``: one call of the training command; returns its log."""

    def call(arch: str, folder: Path, *options: object) -> str:
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *LEARNING, "--save-dir", folder,
            *options,
        )  # fmt: skip
        return result.stdout + result.stderr

    return call


@pytest.fixture(scope="session")
def sequential(train: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and log of six updates of the full model."""
    folder = tmp_path_factory.mktemp("sequential")
    return folder, train(SEQUENTIAL, folder, "--max-update", 6, "--save-interval-updates", 3)


def test_every_layers_penalty_is_logged_and_counts(train: Callable[..., str], tmp_path: Path) -> None:
    log = train(
        SEQUENTIAL, tmp_path, "--permutation-penalty", 0.5, "--label-smoothing", 0, "--warmup-updates", 1,
        "--update-freq", 2, "--max-update", 6, "--tensorboard-logdir", tmp_path / "events",
    )  # fmt: skip
    updates, valid = logged(log), logged(log, "valid")[-1]
    assert len(updates) == 6
    names = ["permutation_penalty_1", "permutation_penalty_2"]
    for name in names:
        # 4 is the uniform matrix's.
        assert 3.9 < updates[0][name] < 4
        assert updates[-1][name] < updates[0][name]
    for one in (updates[0], {name.removeprefix("valid_"): value for name, value in valid.items()}):
        # Losses are logged in bits.
        added = 0.5 * sum(one[name] for name in names) / math.log(2)
        assert one["loss"] == pytest.approx(one["nll_loss"] + added, abs=2e-3)
    written = b"".join(path.read_bytes() for path in (tmp_path / "events" / "train_inner").iterdir())
    assert all(name.encode() in written for name in names)


@pytest.mark.xdist_group("sequential")
def test_hard_order_at_inference(
    sequential: tuple[Path, str], run_command: RunCommand, copy_reverse_data: Path
) -> None:
    """It is chosen when generating, and the log says how far it is from what was learned."""

    def generate(*options: object) -> str:
        result = run_command(
            "fairseq-depthwise", "generate", copy_reverse_data, "--path", sequential[0] / "checkpoint_last.pt",
            "--gen-subset", "test", "--cpu", "--beam", 2, "--max-len-b", 8, *options,
        )  # fmt: skip
        return result.stderr + result.stdout

    soft, hard = generate(), generate("--model-overrides", "{'permutation_at_inference': 'hard'}")
    found = re.findall(r"encoder\.layers\.(\d)\.order: units in the order ([\d ]+), ([\d.]+) from", hard)
    assert [layer for layer, _, _ in found] == ["0", "1"]
    for _, order, distance in found:
        assert sorted(order.split()) == ["1", "2", "3", "4"]
        # Of the uniform matrix from any permutation: the root of 3.
        assert float(distance) == pytest.approx(3**0.5, abs=0.1)
    assert "units in the order" not in soft
    scores = [re.findall(r"^H-\d+\t(\S+)", log, re.MULTILINE) for log in (soft, hard)]
    assert scores[0] != scores[1]
