"""``fairseq-depthwise inspect``: what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_checkpoints import tiny_checkpoint

from fairseq_depthwise.evaluation.checkpoint_summary import summarize

GROWING = {"growth_stages": "2:2,4:2,6:", "growth_side": "encoder", "growth_strategy": "top-most"}


def test_every_line(tmp_path: Path, printed: Callable[..., str], document: Callable[..., Any]) -> None:
    extra = {
        "train_iterator": {"epoch": 3, "iterations_in_epoch": 7}, "val_loss": 4.5, "best": 4.25,
        "averaged_from": ["a.pt", "b.pt"], "grown_from": "2 encoder layers, top", "ema": {"x": torch.ones(1)},
        "versions": {"fairseq-depthwise": "0.1.0", "torch": "2.13.0"},
    }  # fmt: skip
    state, model = tiny_checkpoint(extra=extra, parts={"task": GROWING}, decoder_layers=1)
    torch.save(state, tmp_path / "checkpoint.pt")
    printed_lines = printed("inspect", tmp_path / "checkpoint.pt").splitlines()
    lines = {name: text.strip() for name, _, text in (line.partition("  ") for line in printed_lines)}
    expected = {
        "file": str(tmp_path / "checkpoint.pt"), "bytes": f"{(tmp_path / 'checkpoint.pt').stat().st_size:,}",
        "architecture": "sdt_transformer", "encoder layers": "4", "encoder embed dim": "16", "decoder layers": "1",
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}", "dtype": "float32",
        "updates": "1,200", "epoch": "3", "mid epoch": "yes", "lr scheduler": "inverse_sqrt_restart",
        "peak lr": "0.002", "restarts": "400, 800", "stage": "2", "stages": "3", "growth stages": "2:2,4:2,6:",
        "metric": "loss", "val score": "4.5", "best score": "4.25", "optimizer state": "yes", "moving average": "yes",
        "averaged from": "a.pt, b.pt", "grown from": "2 encoder layers, top",
        "versions": "fairseq-depthwise 0.1.0, torch 2.13.0",
    }  # fmt: skip
    assert expected.items() <= lines.items()
    found = document("inspect", tmp_path / "checkpoint.pt")
    assert found == found | {
        **summarize(state, "checkpoint.pt"),
        "restarts": [400, 800],
        "averaged_from": ["a.pt", "b.pt"],
    }


def test_scores_of_a_run_that_diverged_are_null(tmp_path: Path, printed: Callable[..., str]) -> None:
    state, _ = tiny_checkpoint(extra={"val_loss": float("inf"), "best": float("nan")})
    torch.save(state, tmp_path / "checkpoint.pt")
    # Python reads NaN and Infinity, which are not JSON.
    text = printed("inspect", tmp_path / "checkpoint.pt", "--json")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (document["val_score"], document["best_score"]) == (None, None)
