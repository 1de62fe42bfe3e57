"""A model that diverged in training: every command that uses or writes its parameters refuses it in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from probe_checkpoints import checkpoint_of, data_in
from unit_checkpoints import unit_checkpoint, unit_data

from fairseq_depthwise import cli

OURS = "depthwise_lstm_transformer"


def diverged(path: str) -> tuple[str, str]:
    """Write NaN into a weight of a checkpoint; returns the path and the weight's name."""
    state = torch.load(path, weights_only=True)
    name = next(
        name for name, value in state["model"].items() if name.startswith("decoder.layers.0") and value.ndim == 2
    )
    state["model"][name][0, 0] = float("nan")
    torch.save(state, path)
    return path, name


@pytest.mark.parametrize(
    "words",
    [
        ["average", "CHECKPOINT", "CHECKPOINT", "--output", "OUT"],
        ["grow", "CHECKPOINT", "OUT", "--layers", "6"],
        ["translate", "CHECKPOINT", "--data", "DATA", "--cpu"],
        ["similarity", "CHECKPOINT", "--data", "DATA"],
        ["gates", "CHECKPOINT", "--data", "DATA"],
        ["units", "CHECKPOINT", "--data", "DATA"],
    ],
    ids=lambda words: words[0],
)
def test_command_names_the_parameter(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "units":
        data, (path, name) = unit_data(tmp_path / "data-bin"), diverged(unit_checkpoint(tmp_path))
    else:
        data, (path, name) = data_in(tmp_path / "data-bin"), diverged(checkpoint_of(tmp_path, OURS))
    output = tmp_path / "out.pt"
    named = {"CHECKPOINT": path, "DATA": data, "OUT": str(output)}
    assert cli.main([named.get(word, word) for word in words]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert f"{path} holds NaN or infinite values in 1 of its " in line
    assert name in line
    assert not output.exists()
