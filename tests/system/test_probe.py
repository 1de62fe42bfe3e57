"""Linear layers in trained models, through the commands that users type."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_states import hypotheses, logged

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

#: All tests here share one trained model and one probe of it.
LEARNING = ["--optimizer", "adam", "--cpu", "--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "1"]

#: What the maps are trained for.
MAPS = [
    "--arch", "linearized_transformer", "--criterion", "linearization_probe", "--probe-layers", "encoder.1,decoder.1",
    "--lr-scheduler", "fixed", "--disable-validation",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """A depth-wise model that has learned a little."""
    folder = tmp_path_factory.mktemp("trained")
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options("depthwise_lstm_transformer"), *LEARNING,
        "--criterion", "label_smoothed_cross_entropy", "--lr", 5e-3, "--lr-scheduler", "inverse_sqrt",
        "--warmup-updates", 20, "--max-tokens", 1000, "--max-update", 60, "--disable-validation",
        "--share-all-embeddings", "--dropout", 0, "--max-target-positions", 30, "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def probed(run_command: RunCommand, trained: Path, copy_reverse_data: Path) -> Path:
    folder = trained.parent / "probe"
    result = run_command(
        "fairseq-depthwise", "probe", trained, "--data", copy_reverse_data, "--output", folder, "--cpu", "--layers",
        "encoder.1,decoder.1", "--probe-state", "pair", "--max-tokens", 300, "--json",
        "--train-subset", "valid",
    )  # fmt: skip
    assert result.stdout == (folder / "table.json").read_text()
    return folder


@pytest.fixture(scope="module")
def train(run_command: RunCommand, copy_reverse_data: Path, trained: Path) -> Callable[..., str]:
    """``train(folder, *options)`` trains the maps; returns the log."""

    def call(folder: Path, *options: object, program: tuple[object, ...] = ("fairseq-depthwise", "train")) -> str:
        result = run_command(
            *program, copy_reverse_data, *MAPS, *LEARNING, "--probe-path", trained, "--save-dir", folder, *options
        )
        return result.stdout + result.stderr

    return call


def test_checkpoints_of_the_table_are_ordinary_ones(
    probed: Path, trained: Path, run_command: RunCommand, copy_reverse_data: Path
) -> None:
    """Generation repeats the rows' translations."""
    rows = json.loads((probed / "table.json").read_text())["models"][0]["rows"]
    assert [row["layer"] for row in rows] == ["none", "encoder.1", "decoder.1"]
    files = [trained, *(probed / f"checkpoints/{layer}.pt" for layer in ("encoder.1", "decoder.1"))]
    for row, file in list(zip(rows, files, strict=True))[1:]:
        result = run_command(
            "fairseq-depthwise", "generate", copy_reverse_data, "--path", file, "--beam", 4, "--lenpen", 0.6,
            "--max-tokens", 4096, "--cpu",
        )  # fmt: skip
        expected = (probed / f"hypotheses/{row['layer']}.txt").read_text().splitlines()
        found = hypotheses(result.stdout)
        assert [found[number] for number in range(len(found))] == expected


@pytest.mark.long
def test_distill_comes_near_the_closed_form(train: Callable[..., str], probed: Path, tmp_path: Path) -> None:
    updates = logged(
        train(tmp_path, "--lr", 1e-2, "--lr-scheduler", "polynomial_decay", "--total-num-update", 200, "--max-update",
              200, "--max-tokens", 100000, "--train-subset", "valid")
    )  # fmt: skip
    rows = json.loads((probed / "table.json").read_text())["models"][0]["rows"]
    for row in rows[1:]:
        error = updates[-1][f"mse_{row['layer']}"]
        assert row["error"] * 0.999 < error < row["error"] * 1.1
        assert error < 0.5 * updates[0][f"mse_{row['layer']}"]
