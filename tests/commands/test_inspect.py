"""``fairseq-depthwise inspect``: what is printed, and files that are no checkpoints."""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_checkpoints import tiny_checkpoint

from fairseq_depthwise.evaluation.checkpoint_summary import summarize

GROWING = {"growth_stages": "2:2,4:2,6:", "growth_side": "encoder", "growth_strategy": "top-most"}


@pytest.fixture
def inspect(tmp_path: Path, printed: Callable[..., str]) -> Callable[..., dict[str, str]]:
    """``inspect(state)``: save it, run the command, return the lines by what they are about."""

    def run(state: dict[str, Any]) -> dict[str, str]:
        torch.save(state, tmp_path / "checkpoint.pt")
        lines = printed("inspect", tmp_path / "checkpoint.pt").splitlines()
        return {name: text.strip() for name, _, text in (line.partition("  ") for line in lines)}

    return run


def test_every_line(inspect: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    extra = {
        "train_iterator": {"epoch": 3, "iterations_in_epoch": 7}, "val_loss": 4.5, "best": 4.25,
        "averaged_from": ["a.pt", "b.pt"], "grown_from": "2 encoder layers, top", "ema": {"x": torch.ones(1)},
        "versions": {"fairseq-depthwise": "0.1.0", "torch": "2.13.0"},
    }  # fmt: skip
    state, model = tiny_checkpoint(extra=extra, parts={"task": GROWING}, decoder_layers=1)
    lines = inspect(state)
    expected = {
        "file": ["checkpoint.pt", f"{(tmp_path / 'checkpoint.pt').stat().st_size / 1e6:.1f} MB"],
        "architecture": ["sdt_transformer"],
        "encoder": ["4 layers", "width 16", "2 heads"],
        "decoder": ["1 layer,", "width 16", "2 heads"],
        "parameters": [f"{sum(parameter.numel() for parameter in model.parameters()):,}", "float32"],
        "updates": ["1,200", "epoch 3"],
        "learning rate": ["inverse_sqrt_restart", "0.002", "400, 800"],
        "stage": ["2 of 3", "4 layers", "2:2,4:2,6:", "encoder", "top-most"],
        "validation": ["loss 4.5", "4.25"],
        "optimizer state": ["yes"],
        "moving average": ["yes"],
        "averaged from": ["a.pt, b.pt"],
        "grown from": ["2 encoder layers, top"],
        "versions": ["fairseq-depthwise 0.1.0", "torch 2.13.0"],
    }
    assert lines.keys() == expected.keys()
    for name, values in expected.items():
        assert all(value in lines[name] for value in values), lines[name]


def test_what_is_missing_takes_no_line(inspect: Callable[..., dict[str, str]]) -> None:
    state, _ = tiny_checkpoint()
    lines = inspect({"cfg": {"model": state["cfg"]["model"]}, "model": state["model"]})
    assert lines["updates"] == lines["versions"] == "not recorded"
    assert lines["optimizer state"] == lines["moving average"] == "no"
    assert lines.keys().isdisjoint({"learning rate", "stage", "validation", "averaged from", "grown from"})


def test_a_depth_of_no_stage_the_end_of_an_epoch_and_a_preset(inspect: Callable[..., dict[str, str]]) -> None:
    position = {"train_iterator": {"epoch": 3, "iterations_in_epoch": 0}}
    state, _ = tiny_checkpoint(extra=position, parts={"task": GROWING}, encoder_layers=8)
    state["cfg"]["model"]["_name"] = "sdt_transformer_wmt_en_de"
    lines = inspect(state)
    assert "none has 8 layers" in lines["stage"]
    assert "end of epoch 2" in lines["updates"]
    assert lines["architecture"] == "sdt_transformer_wmt_en_de (sdt_transformer)"


def test_another_plugins_checkpoint_of_the_older_style(inspect: Callable[..., dict[str, str]]) -> None:
    """With copies of encoder weights, as stock fairseq has them."""
    values = {"encoder.layers.0.fc1.weight": torch.ones(4), "encoder.layers.0.fc1_weight": torch.zeros(4)}
    lines = inspect({"args": Namespace(arch="theirs"), "model": values})
    assert lines["architecture"].startswith("theirs, ")
    assert lines["encoder"] == "1 layer"
    assert lines["parameters"].startswith("4, float32")
    assert "4 in copies" in lines["parameters"]


@pytest.mark.parametrize("zipped", [True, False])
def test_json_is_the_summary(zipped: bool, tmp_path: Path, document: Callable[..., Any]) -> None:
    path = tmp_path / "checkpoint.pt"
    state, _ = tiny_checkpoint(parts={"task": GROWING})
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    found = document("inspect", path)
    assert (found.pop("file"), found.pop("bytes")) == (str(path), path.stat().st_size)
    assert found == {**asdict(summarize(state, "checkpoint.pt")), "restarts": [400, 800], "averaged_from": []}
    assert (found["stage"], found["stages"], found["encoder_layers"]) == (2, 3, 4)


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nowhere.pt", "{folder}/nowhere.pt does not exist"),
        ("text.pt", "{folder}/text.pt is not a PyTorch file"),
        ("empty.pt", "{folder}/empty.pt is empty"),
        ("truncated.pt", "{folder}/truncated.pt is truncated or damaged"),
        ("hostile.pt", "{folder}/hostile.pt is refused"),
        ("oldest.pt", "{folder}/oldest.pt is refused"),
        ("tensor.pt", "{folder}/tensor.pt is not a fairseq checkpoint: it holds a Tensor"),
        ("strange.pt", "{folder}/strange.pt is not a fairseq checkpoint"),
        ("", "{folder} cannot be used"),
    ],
)
def test_refused(name: str, named: str, tmp_path: Path, refusal: Callable[..., str]) -> None:
    torch.save(tiny_checkpoint()[0], tmp_path / "truncated.pt")
    whole = (tmp_path / "truncated.pt").read_bytes()
    (tmp_path / "truncated.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.pt").write_text("text", encoding="utf-8")
    (tmp_path / "empty.pt").touch()
    torch.save({"cfg": Hostile(), "model": {}}, tmp_path / "hostile.pt")
    (tmp_path / "oldest.pt").write_bytes(pickle.dumps({"model": Hostile()}))
    torch.save(torch.ones(1), tmp_path / "tensor.pt")
    torch.save({"cfg": ["a", "list"], "model": {}}, tmp_path / "strange.pt")
    sentence = refusal("inspect", tmp_path / name)
    assert sentence.startswith(named.format(folder=tmp_path))
    assert "executed" not in sentence
