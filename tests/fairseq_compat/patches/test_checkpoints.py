"""Patches of checkpoints, but for those of ``provenance``, which tests/system tries through the commands."""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.optim import fp16_optimizer
from probe_checkpoints import checkpoint_of, data_in, other_architecture
from torch import nn

from fairseq_compat import UserError, checkpoints

# Pruned.


@pytest.mark.parametrize(
    ("kept", "layers", "expected"),
    [("1", 2, {"encoder.layers.0.w": 1}), ("1", 1, {"encoder.layers.0.w": 0}), ("0,2", 3, [0, 2]), ("7", 2, None)],
)
def test_layers_of_one_side_are_kept(kept: str, layers: int, expected: Any) -> None:
    cfg = Namespace(arch="transformer", encoder_layers_to_keep=kept, decoder_layers_to_keep=None)
    state: dict[str, Any] = {f"encoder.layers.{number}.w": number for number in range(layers)}
    decoder = {"decoder.layers.0.w": "w", "decoder.layers.1.w": "w", "decoder.embed": "e"}
    if expected is None:
        with pytest.raises(UserError, match="--encoder-layers-to-keep 7"):
            checkpoint_utils.prune_state_dict(state | decoder, cfg)
        return
    if isinstance(expected, list):
        expected = {f"encoder.layers.{number}.w": layer for number, layer in enumerate(expected)}
    assert checkpoint_utils.prune_state_dict(state | decoder, cfg) == expected | decoder
    assert cfg.encoder_layers_to_keep is None  # so that the next checkpoint is not pruned


# Saved whole.


@pytest.mark.parametrize(
    ("failures", "raised"),
    [([errno.EIO, errno.EIO], None), ([errno.EIO] * 3, OSError), ([errno.ENOSPC], UserError)],
    ids=["passing", "lasting", "full disk"],
)
def test_a_failing_save_is_tried_again_or_keeps_the_old_file(
    failures: list[int], raised: type[Exception] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = torch.save, list(failures)

    def save(obj: Any, file: Any) -> None:
        if left:
            file.write(b"half of a checkpoint")
            raise OSError(left.pop(), "failing")
        real(obj, file)

    monkeypatch.setattr(torch, "save", save)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")
    if raised is None:
        checkpoint_utils.torch_persistent_save({"weight": torch.ones(2)}, str(path))
        assert torch.equal(checkpoints.load(path)["weight"], torch.ones(2))
    else:
        with pytest.raises(raised):
            checkpoint_utils.torch_persistent_save({}, str(path))
        assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


# Where a training goes on from.


class AskedError(Exception):
    """fairseq has gone on to read a checkpoint."""


def load(folder: Path, *, master: bool = True, **options: Any) -> str:
    """The path that the trainer is asked to read."""

    def ask(path: str, *_: Any, **__: Any) -> None:
        raise AskedError(path)

    trainer = SimpleNamespace(checkpoint_suffix="", is_data_parallel_master=master, load_checkpoint=ask)
    cfg = CheckpointConfig(save_dir=str(folder), **options)
    with pytest.raises(AskedError) as asked:
        checkpoint_utils.load_checkpoint(cfg, trainer)
    return str(asked.value)


@pytest.mark.parametrize("option", ["restore_file", "continue_once", "finetune_from_model"])
def test_what_is_no_file_is_refused_and_a_file_is_read(option: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in ("", str(tmp_path / "folder"), str(tmp_path / "missing")):
        with pytest.raises(UserError, match=f"^--{option.replace('_', '-')} {path or repr(path)} is not a file"):
            load(tmp_path / "run", **{option: path})
    other = tmp_path / "other.pt"
    other.touch()
    assert load(tmp_path / "run", **{option: str(other)}) == str(other)


def test_a_run_of_its_own_needs_no_file(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "checkpoint_best.pt")
    assert load(tmp_path / "run", restore_file=path) == path
    last = tmp_path / "checkpoint_last.pt"
    assert load(tmp_path) == str(last)
    last.symlink_to("gone")
    with pytest.raises(UserError, match=f"^--save-dir {last} is not a file"):
        load(tmp_path)
    last.unlink()
    last.touch()
    assert load(tmp_path, continue_once="gone.pt") == str(last)
    assert load(tmp_path, restore_file="elsewhere/model.pt", master=False) == "elsewhere/model.pt"


# What is in a checkpoint.


@pytest.mark.parametrize("entries", [("cfg", "model"), ("args", "cfg", "model"), ("cfg", "model", "extra_state")])
def test_options_and_weights_are_enough(entries: tuple[str, ...], tmp_path: Path) -> None:
    data, path = data_in(tmp_path / "data"), checkpoint_of(tmp_path, "transformer")
    state = checkpoints.load(path)
    torch.save({name: state.get(name) for name in entries}, path)
    (model,), _ = checkpoint_utils.load_model_ensemble([path], {"data": data})
    for name, parameter in model.decoder.named_parameters(prefix="decoder"):
        assert torch.equal(parameter, state["model"][name])


@pytest.mark.parametrize("arch", ["transformer", "lstm"])
def test_a_trained_model_needs_no_pretrained_embeddings(arch: str, tmp_path: Path) -> None:
    data = data_in(tmp_path / "data")
    path = checkpoint_of(tmp_path, arch) if arch == "transformer" else other_architecture(tmp_path, arch)
    state = checkpoints.load(path)
    for side in ("encoder", "decoder"):
        state["cfg"]["model"][f"{side}_embed_path"] = str(tmp_path / "moved.txt")
    torch.save(state, path)
    checkpoint_utils.load_model_ensemble([path], {"data": data})


def test_a_model_that_diverged_is_refused(tmp_path: Path) -> None:
    data, path = data_in(tmp_path / "data"), checkpoint_of(tmp_path, "transformer")
    state = checkpoints.load(path)
    checkpoint_utils.load_model_ensemble([path], {"data": data})
    for value in (float("nan"), float("inf")):
        state["model"]["decoder.layers.1.fc1.weight"][0, 0] = value
        torch.save(state, path)
        with pytest.raises(UserError, match=rf"{path} holds NaN .* in 1 of its \d+ .* decoder\.layers\.1\.fc1\.weight"):
            checkpoint_utils.load_model_ensemble([path], {"data": data})


# The float32 weights of half-precision trainings.


class Moments:
    """An optimizer without state."""

    def state_dict(self) -> dict[str, Any]:
        return {"state": {}, "param_groups": [{"params": [0]}]}

    def load_state_dict(self, state: dict[str, Any], optimizer_overrides: Any = None) -> None:
        assert state["param_groups"] == [{"params": [0]}]


def optimizer_of(weights: list[Any], *, flat: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """fairseq's mixin over two parameters, without what a configuration brings."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    optimizer = fp16_optimizer._FP16OptimizerMixin()
    optimizer.fp16_params = weights
    optimizer.fp32_params = optimizer.build_fp32_params(SimpleNamespace(), weights, flatten=flat)
    optimizer.fp32_optimizer, optimizer.scaler = Moments(), None
    return optimizer


def values(optimizer: Any) -> torch.Tensor:
    masters = optimizer.fp32_params
    found = masters.values() if isinstance(masters, dict) else masters
    return torch.cat([master.detach().reshape(-1) for master in found])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("saved_flat", [False, True])
@pytest.mark.parametrize("loaded_flat", [False, True])
def test_masters_come_back(
    kind: torch.dtype, saved_flat: bool, loaded_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    precise = [torch.randn(3, 5), torch.randn(7)]
    weights = [nn.Parameter(value.to(kind)) for value in precise]
    before = optimizer_of(weights, flat=saved_flat, monkeypatch=monkeypatch)
    start = 0
    for value in precise:
        size = value.numel()
        whole = next(iter(before.fp32_params.values())) if saved_flat else None
        target = before.fp32_params[start // 15].data if whole is None else whole.data[start : start + size]
        target.view(-1).copy_(value.view(-1))
        start += size
    state = before.state_dict()
    expected = torch.cat([value.reshape(-1) for value in precise])
    assert torch.equal(values(before), expected)

    after = optimizer_of(weights, flat=loaded_flat, monkeypatch=monkeypatch)
    assert not torch.equal(values(after), expected)
    after.load_state_dict(state)
    assert torch.equal(values(after), expected)

    # One weight was changed, as by hand: it counts, and the others keep their masters.
    with torch.no_grad():
        weights[0][1, 2] = 4.0
    changed = optimizer_of(weights, flat=loaded_flat, monkeypatch=monkeypatch)
    changed.load_state_dict(state)
    expected[7] = 4.0
    assert torch.equal(values(changed), expected)
