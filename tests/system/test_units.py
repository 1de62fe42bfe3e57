"""``fairseq-depthwise units`` on a model that fairseq trained and saved, with data that it binarized."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path


def test_units_of_a_trained_model(
    run_command: Callable[..., subprocess.CompletedProcess[str]],
    tiny_model_options: Callable[[str], list[str]],
    copy_reverse_data: Path,
    tmp_path: Path,
) -> None:
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options("mute_transformer_biased"),
        "--unit-sharing", "ffn", "--optimizer", "adam", "--lr", "0.001", "--criterion", "label_smoothed_cross_entropy",
        "--max-tokens", 1000, "--max-update", 2, "--no-epoch-checkpoints", "--disable-validation",
        "--save-dir", tmp_path,
    )  # fmt: skip
    path = tmp_path / "checkpoint_last.pt"
    moved = shutil.copytree(copy_reverse_data, tmp_path / "moved")
    done = run_command("fairseq-depthwise", "units", path, "--data", moved, "--subset", "test", "--json")
    (report,) = json.loads(done.stdout)["checkpoints"]
    assert [layer["layer"] for layer in report["layers"]] == [1, 2]
    for layer in report["layers"]:
        assert sum(layer["weights"]) > 0.9
        for name in ("attention_positions", "attention_outputs", "feed_forward_outputs"):
            assert 0.3 < layer[name] < 2
