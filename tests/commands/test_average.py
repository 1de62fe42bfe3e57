"""``fairseq-depthwise average``: which files, what is written, and files that are not overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_compat import checkpoints


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A training folder with three epochs, weights 1, 2 and 6, of which the last two were kept as best."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for epoch, value in ((1, 1.0), (2, 2.0), (3, 6.0)):
        state = {
            "cfg": {"checkpoint": {"maximize_best_checkpoint_metric": True}},
            "model": {"weight": torch.full((2,), value)},
            "extra_state": {},
        }
        torch.save(state, folder / f"checkpoint{epoch}.pt")
        if epoch > 1:
            torch.save(state, folder / f"checkpoint.best_bleu_{10 * epoch}.0000.pt")
    return folder


def weight(path: Path) -> float:
    return checkpoints.load_checkpoint(path)["model"]["weight"][0].item()


@pytest.mark.parametrize(
    ("words", "mean", "names"),
    [
        ("--last 2 {folder}", 4.0, ["checkpoint2.pt", "checkpoint3.pt"]),
        ("--last 30 {folder}", 3.0, ["checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"]),
        ("--best 2 {folder}", 4.0, ["checkpoint.best_bleu_30.0000.pt", "checkpoint.best_bleu_20.0000.pt"]),
        ("{folder}/checkpoint3.pt {folder}/checkpoint1.pt", 3.5, ["checkpoint3.pt", "checkpoint1.pt"]),
    ],
)
def test_mean(
    words: str, mean: float, names: list[str], run_folder: Path, document: Callable[..., Any],
    printed: Callable[..., str],
) -> None:  # fmt: skip
    output = run_folder / "average.pt"
    command = ["average", "--output", output, *words.format(folder=run_folder).split()]
    paths = [str(run_folder / name) for name in names]
    assert document(*command) == {"output": str(output), "inputs": paths}
    assert weight(output) == mean
    line = printed(*command, "--force")
    assert line.startswith(f"{output}: ")
    assert ", ".join(paths) in line
