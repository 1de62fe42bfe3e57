"""``fairseq-depthwise grow``: what the new file holds, what stays, what is refused."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from growth_checkpoints import checkpoint_of, save
from tiny_models import FAMILIES, build_tiny

from fairseq_compat import checkpoints
from fairseq_depthwise import cli

SDT = {"encoder_layers": 4, "encoder_block_size": 2, "share_all_embeddings": True}


def shallow(path: Path, family: str = "sdt_transformer", **options: Any) -> str:
    """A checkpoint of a tiny model as a training with Adam and a moving average leaves it, after 7 updates."""
    model = build_tiny(family, **options)
    state = checkpoint_of(model.state_dict(), {**FAMILIES[family], **options, "_name": family})
    parameters = list(model.parameters())
    state["last_optimizer_state"] = {
        "state": {number: {"step": 7, "exp_avg": torch.ones_like(one)} for number, one in enumerate(parameters)},
        "param_groups": [{"lr": 0.1, "params": list(range(len(parameters)))}],
        "loss_scale": 4.0,
    }
    state["optimizer_history"][-1]["lr_scheduler_state"] = {"best": 1.5, "start": 0, "restarts": [3], "updates": 7}
    averages = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    state["extra_state"] = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 3}, "ema": averages}
    return save(path / "shallow.pt", state)


def grow(*arguments: object) -> int:
    return cli.main(["grow", *map(str, arguments)])


def layer(state: dict[str, torch.Tensor], number: int) -> list[torch.Tensor]:
    return [tensor for name, tensor in state.items() if name.startswith(f"encoder.layers.{number}.")]


# --- what is in the new file -----------------------------------------------------------------------------------------


def test_training_state(tmp_path: Path) -> None:
    path, output = shallow(tmp_path, **SDT), tmp_path / "deep.pt"
    grow(path, output, "--layers", 6)
    state = checkpoints.load_checkpoint(output)
    optimizer = state["last_optimizer_state"]
    assert optimizer["state"] == {}
    assert optimizer["loss_scale"] == 4.0
    deep = build_tiny(**{"name": "sdt_transformer", **SDT, "encoder_layers": 6})
    assert optimizer["param_groups"] == [{"lr": 0.1, "params": list(range(len(list(deep.parameters()))))}]
    last = state["optimizer_history"][-1]
    assert last["num_updates"] == 7
    assert last["lr_scheduler_state"] == {"best": 1.5, "start": 0, "restarts": [3, 7], "updates": 7}
    average, model = state["extra_state"]["ema"], state["model"]
    assert average.keys() == model.keys()
    for number in range(6):
        for one, other in zip(layer(average, number), layer(model, number), strict=True):
            assert torch.equal(one, other + 1)
    assert state["extra_state"]["train_iterator"] == {"epoch": 2, "iterations_in_epoch": 3}
    assert state["extra_state"]["grown_from"] == "4 encoder layers, top-most"


def test_decoder_side_and_options_as_a_namespace(tmp_path: Path) -> None:
    state = checkpoints.load_checkpoint(shallow(tmp_path, **SDT))
    state["args"], state["cfg"] = Namespace(**state["cfg"]["model"]), None
    output = tmp_path / "deep.pt"
    assert grow(save(tmp_path / "old.pt", state), output, "--layers", 5, "--side", "decoder") == 0
    grown = checkpoints.load_checkpoint(output)
    assert (grown["args"].decoder_layers, grown["args"].encoder_layers) == (5, 4)
    assert "decoder.layers.4.cross_attention.key_projection.weight" in grown["model"]


def test_the_result_is_printed(tmp_path: Path, printed: Callable[..., str], document: Callable[..., Any]) -> None:
    path, output = shallow(tmp_path, **SDT), tmp_path / "deep.pt"
    result = document("grow", path, output, "--layers", 6)
    model = checkpoints.load_checkpoint(output)["model"]
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in model.values()}
    assert result["parameters"] == sum(distinct.values())
    assert (result["layers_before"], result["layers"], result["restarts_at"]) == (4, 6, 7)
    assert "from 4 to 6 layers (top-most)" in printed("grow", path, output, "--layers", 6, "--force")
