"""``--optimizer fused_adam``: the checkpoints it goes on from, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import optim
from fairseq.optim import FairseqOptimizer
from growing_trainer import PEAK, save, train, trainer_of
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_compat import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call

SHAPES = [(3, 5), (7,), (2, 3, 4), ()]
RATE, BETAS, EPSILON, DECAY = 0.03, (0.9, 0.98), 1e-4, 0.1


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    chance = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=chance).to(dtype)) for shape in SHAPES]


def gradients(seed: int) -> list[Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=chance) * 10.0**-number for number, shape in enumerate(SHAPES)]


def optimizer_of(params: list[nn.Parameter], **options: Any) -> FairseqOptimizer:
    """As fairseq builds it from a command line."""
    given = {"adam_betas": str(BETAS), "adam_eps": EPSILON, "weight_decay": DECAY, "lr": [RATE], **options}
    return optim.build_optimizer(OmegaConf.create({"_name": "fused_adam", **given}), params)


def take_steps(optimizer: FairseqOptimizer, params: list[nn.Parameter], seeds: range, clip: float = 0.0) -> None:
    """As fairseq's trainer takes them: gradients of sums, the number of tokens, clipping, the step."""
    for seed in seeds:
        optimizer.zero_grad()
        for parameter, gradient in zip(params, gradients(seed), strict=True):
            parameter.grad = gradient * (seed + 2)
        optimizer.multiply_grads(1 / (seed + 2))
        optimizer.clip_grad_norm(clip)
        optimizer.step()


def as_older_versions_saved(state: dict[str, Any]) -> dict[str, Any]:
    """As fairseq's ``adam`` does: whole numbers of steps, and groups that name no kernel."""
    names = ("lr", "betas", "eps", "weight_decay", "amsgrad", "params")
    return {
        "state": {number: {**one, "step": int(one["step"])} for number, one in state["state"].items()},
        "param_groups": [{name: group[name] for name in names} for group in state["param_groups"]],
    }


def as_a_stranger_saved(state: dict[str, Any]) -> dict[str, Any]:
    """With options that nobody has chosen, and numbers in another order in memory."""
    state = copy.deepcopy(state)
    for one in state["state"].values():
        one["exp_avg"] = one["exp_avg"].t().contiguous().t() if one["exp_avg"].dim() == 2 else one["exp_avg"]
    groups = [{**group, "maximize": True, "betas": (0.0, 0.0), "amsgrad": True} for group in state["param_groups"]]
    return {**state, "param_groups": groups}


@pytest.mark.parametrize("saved", [copy.deepcopy, as_older_versions_saved, as_a_stranger_saved])
def test_a_saved_state_goes_on_bit_for_bit(saved: Any) -> None:
    params = parameters()
    optimizer = optimizer_of(params)
    take_steps(optimizer, params, range(3))
    again = [nn.Parameter(parameter.detach().clone()) for parameter in params]
    resumed = optimizer_of(again)
    resumed.load_state_dict(copy.deepcopy(saved(optimizer.state_dict())))
    assert resumed.param_groups[0]["fused"]
    for one, those in ((optimizer, params), (resumed, again)):
        take_steps(one, those, range(3, 6), clip=0.5)
    for parameter, other in zip(params, again, strict=True):
        assert torch.equal(parameter, other)


@pytest.mark.parametrize(
    ("first", "precision"),
    [
        ("fused_adam", {}),
        ("adam", {}),  # whose name and entries the checkpoints of older versions have
        ("fused_adam", {"common__fp16": True, "common__fp16_no_flatten_grads": True, "common__fp16_init_scale": 4}),
    ],
    ids=str,
)
def test_trainings_go_on_from_checkpoints(first: str, precision: dict[str, Any], tmp_path: Path) -> None:
    """Also after growth that keeps the moments."""

    def training(name: str) -> Any:
        optimizer = {"_name": name, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-9, "weight_decay": 0.01, "lr": [PEAK]}
        if name == "adam":
            optimizer |= {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
        options = {"task__growth_optimizer_state": "keep", "model__dropout": 0.2, "optimization__clip_norm": 0.1}
        return trainer_of(optimizer=optimizer, task__save_dir=str(tmp_path), **options, **precision)

    whole = training(first)
    train(whole, 3)
    assert len(whole.get_model().encoder.layers) == 2
    path = str(save(whole, tmp_path / "checkpoint_last.pt"))
    again = training("fused_adam")
    assert again.load_checkpoint(path) is not None
    train(again, 3)
    train(whole, 3)
    assert whole.get_num_updates() == again.get_num_updates() == 6
    found = again.get_model().state_dict()
    for name, value in whole.get_model().state_dict().items():
        if first == "fused_adam":
            assert torch.equal(value, found[name]), name
        elif not name.endswith("key_projection.bias"):  # without effect, so that rounding is all of its gradient
            torch.testing.assert_close(value, found[name], rtol=1e-3, atol=1e-3)


def test_half_precision_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="--memory-efficient-bf16"):
        optimizer_of(parameters(torch.bfloat16))


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
def test_moments_of_another_shape_are_refused(name: str) -> None:
    params = parameters()
    optimizer = optimizer_of(params)
    take_steps(optimizer, params, range(1))
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0][name] = torch.ones(2)
    with pytest.raises(UserError, match=name):
        optimizer.load_state_dict(state)
