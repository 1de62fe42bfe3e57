"""``fairseq-depthwise inspect``: what is printed, and what is said of files that are no checkpoints."""

from __future__ import annotations

import json
import pickle
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_checkpoints import tiny_checkpoint

from fairseq_compat import checkpoints
from fairseq_depthwise import cli
from fairseq_depthwise.evaluation.checkpoint_summary import summarise

GROWING = {"growth_stages": "2:2,4:2,6:", "growth_side": "encoder", "growth_strategy": "top-most"}
VERSIONS = {"fairseq-depthwise": "0.1.0", "torch": "2.13.0"}


@pytest.fixture
def inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, str]]:
    """``inspect(state)``: save it, run the command, return the lines by what they are about."""

    def run(state: dict[str, Any]) -> dict[str, str]:
        torch.save(state, tmp_path / "checkpoint.pt")
        assert cli.main(["inspect", str(tmp_path / "checkpoint.pt")]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return {name: text.strip() for name, _, text in (line.partition("  ") for line in captured.out.splitlines())}

    return run


def test_everything_is_said_in_lines(inspect: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    extra = {
        "train_iterator": {"epoch": 3, "iterations_in_epoch": 7}, "val_loss": 4.5, "best": 4.25,
        "averaged_from": ["a.pt", "b.pt"], "grown_from": "2 encoder layers, top", "ema": {"x": torch.ones(1)},
        "versions": VERSIONS,
    }  # fmt: skip
    state, model = tiny_checkpoint(extra=extra, parts={"task": GROWING}, decoder_layers=1)
    lines = inspect(state)
    count = sum(parameter.numel() for parameter in model.parameters())
    size = (tmp_path / "checkpoint.pt").stat().st_size
    assert lines == {
        "file": f"{tmp_path}/checkpoint.pt, {size / 1e6:.1f} MB",
        "architecture": "sdt_transformer",
        "encoder": "4 layers, width 16, 2 heads",
        "decoder": "1 layer, width 16, 2 heads",
        "parameters": f"{count:,}, float32",
        "updates": "1,200, within epoch 3",
        "learning rate": "inverse_sqrt_restart, peak 0.002, restarted after update 400, 800",
        "stage": "2 of 3 (4 layers), of the plan 2:2,4:2,6: (encoder, top-most)",
        "validation": "loss 4.5 at this point, 4.25 best so far",
        "optimizer state": "yes",
        "moving average": "yes (EMA)",
        "averaged from": "a.pt, b.pt",
        "grown from": "2 encoder layers, top",
        "versions": "fairseq-depthwise 0.1.0, torch 2.13.0",
    }


def test_what_is_missing_takes_no_line(inspect: Callable[..., dict[str, str]]) -> None:
    state, _ = tiny_checkpoint()
    lines = inspect({"cfg": {"model": state["cfg"]["model"]}, "model": state["model"]})
    assert list(lines) == [
        "file", "architecture", "encoder", "decoder", "parameters", "updates", "optimizer state", "moving average",
        "versions",
    ]  # fmt: skip
    assert lines["updates"] == lines["versions"] == "not recorded"
    assert lines["optimizer state"] == lines["moving average"] == "no"


def test_depth_that_no_stage_has(inspect: Callable[..., dict[str, str]]) -> None:
    state, _ = tiny_checkpoint(parts={"task": GROWING}, encoder_layers=8)
    assert inspect(state)["stage"] == "none has 8 layers, of the plan 2:2,4:2,6: (encoder, top-most)"


def test_end_of_an_epoch_and_a_preset(inspect: Callable[..., dict[str, str]]) -> None:
    state, _ = tiny_checkpoint(extra={"train_iterator": {"epoch": 3, "iterations_in_epoch": 0}})
    state["cfg"]["model"]["_name"] = "sdt_transformer_wmt_en_de"
    lines = inspect(state)
    assert lines["updates"] == "1,200, to the end of epoch 2"
    assert lines["architecture"] == "sdt_transformer_wmt_en_de (sdt_transformer)"


def test_checkpoint_of_nobody_knows_whom(inspect: Callable[..., dict[str, str]]) -> None:
    """The older style, an architecture of another plugin, and copies as stock fairseq has them."""
    values = {"encoder.layers.0.fc1.weight": torch.ones(4), "encoder.layers.0.fc1_weight": torch.zeros(4)}
    lines = inspect({"args": Namespace(arch="theirs"), "model": values})
    assert lines["architecture"] == "theirs, which is not known here"
    assert lines["encoder"] == "1 layer"
    assert lines["parameters"] == (
        "4, float32, tied ones perhaps counted twice; beside them 4 in copies of encoder weights that fairseq never "
        "reads"
    )


def test_json_is_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checkpoint.pt"
    state, _ = tiny_checkpoint(parts={"task": GROWING})
    torch.save(state, path)
    assert cli.main(["inspect", "--json", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("file") == str(path)
    assert document.pop("bytes") == path.stat().st_size
    expected = asdict(summarise(state, "checkpoint.pt"))
    assert document == {**expected, "restarts": [400, 800], "averaged_from": []}
    assert (document["stage"], document["stages"], document["encoder_layers"]) == (2, 3, 4)


def test_file_of_the_older_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(tiny_checkpoint()[0], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert cli.main(["inspect", str(tmp_path / "old.pt")]) == 0
    assert "4 layers, width 16, 2 heads" in capsys.readouterr().out


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.pt", "{folder}/nowhere.pt does not exist"),
        ("text.pt", "{folder}/text.pt is not a PyTorch file"),
        ("empty.pt", "{folder}/empty.pt is empty"),
        ("truncated.pt", "{folder}/truncated.pt is truncated or damaged"),
        ("hostile.pt", "{folder}/hostile.pt is refused: its pickle names"),
        ("tensor.pt", "{folder}/tensor.pt is not a fairseq checkpoint: it holds a Tensor"),
        ("strange.pt", "{folder}/strange.pt is not a fairseq checkpoint: it has no options of a model"),
        ("", "{folder} cannot be used: Is a directory"),
    ],
)
def test_bad_input_is_one_sentence(name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints.save(tiny_checkpoint()[0], tmp_path / "good.pt")
    (tmp_path / "text.pt").write_text("text", encoding="utf-8")
    (tmp_path / "empty.pt").touch()
    whole = (tmp_path / "good.pt").read_bytes()
    (tmp_path / "truncated.pt").write_bytes(whole[: len(whole) // 2])
    torch.save({"cfg": Hostile(), "model": {}}, tmp_path / "hostile.pt")
    torch.save(torch.ones(1), tmp_path / "tensor.pt")
    torch.save({"cfg": ["a", "list"], "model": {}}, tmp_path / "strange.pt")
    assert cli.main(["inspect", str(tmp_path / name)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"fairseq-depthwise: error: {said.format(folder=tmp_path)}")


def test_hostile_pickle_of_the_oldest_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hostile.pt").write_bytes(pickle.dumps({"model": Hostile()}))
    assert cli.main(["inspect", str(tmp_path / "hostile.pt")]) == 1
    captured = capsys.readouterr()
    assert "executed" not in captured.out + captured.err
    assert "hostile.pt is refused" in captured.err
