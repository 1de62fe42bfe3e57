"""An optimizer's moments after growth, against Adam computed by hand for each parameter by its name."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from fairseq import optim
from fairseq.optim import FairseqOptimizer
from growth_by_hand import grow
from omegaconf import OmegaConf
from tiny_models import build_tiny
from torch import Tensor, nn

from fairseq_depthwise.growth.optimizer_moments import give_moments, moments_of
from fairseq_depthwise.growth.parameter_map import ParameterMap

#: So large that a step is more than the rounding of half precisions.
RATE = 0.1
BETAS, EPSILON = (0.9, 0.98), 1e-8

#: Way of training -> type of the model's parameters, and fairseq's options. "fused" is ``--optimizer fused_adam``.
WAYS: dict[str, tuple[torch.dtype, dict[str, bool]]] = {
    "fp32": (torch.float32, {}),
    "bf16": (torch.bfloat16, {"bf16": True}),
    "fp16, flat": (torch.float16, {"fp16": True}),
    "fp16, not flat": (torch.float16, {"fp16": True, "fp16_no_flatten_grads": True}),
    "fused fp32": (torch.float32, {}),
    "fused bf16": (torch.bfloat16, {"bf16": True}),
    "fused fp16, flat": (torch.float16, {"fp16": True}),
    "memory-efficient bf16": (torch.bfloat16, {"bf16": True, "memory_efficient_bf16": True}),
    "memory-efficient fp16": (torch.float16, {"fp16": True, "memory_efficient_fp16": True}),
}

every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq asks CUDA for the device of its flat vector; a CPU tensor's number is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def optimizer_of(way: str, model: nn.Module, **adam: Any) -> FairseqOptimizer:
    """As fairseq's trainer chooses it."""
    given = WAYS[way][1]
    common = {"bf16": False, "fp16": False, "fp16_no_flatten_grads": False, "fp16_scale_window": 1000}
    common |= {"fp16_init_scale": 128, "fp16_scale_tolerance": 0.0, "threshold_loss_scale": None}
    name = "fused_adam" if way.startswith("fused") else "adam"
    if name == "adam":
        adam = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False, **adam}
    betas = str(BETAS)
    cfg = OmegaConf.create(
        {
            "common": {**common, "min_loss_scale": 1e-4, **given},
            "optimizer": {
                "_name": name, "adam_betas": betas, "adam_eps": EPSILON, "weight_decay": 0.0, "lr": [RATE], **adam,
            },
            "optimization": {"update_freq": [1]},
            "distributed_training": {"distributed_world_size": 1},
        }
    )  # fmt: skip
    params = list(model.parameters())
    if way.endswith("fp32"):
        return optim.build_optimizer(cfg.optimizer, params)
    if way.startswith("memory"):
        return optim.MemoryEfficientFP16Optimizer.build_optimizer(cfg, params)
    return optim.FP16Optimizer.build_optimizer(cfg, params)


# --- Adam by hand ----------------------------------------------------------------------------------------------------


@dataclass
class Hand:
    """One parameter: its value in float32, Adam's moments and its steps."""

    value: Tensor
    first: Tensor = field(init=False)
    second: Tensor = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.value = self.value.detach().double()
        self.first, self.second = torch.zeros_like(self.value), torch.zeros_like(self.value)

    def step(self, gradient: Tensor, way: str) -> None:
        """Kingma and Ba 2015, Algorithm 1; fairseq's ``adam`` adds epsilon before the correction."""
        gradient = gradient.double()
        self.steps += 1
        self.first = BETAS[0] * self.first + (1 - BETAS[0]) * gradient
        self.second = BETAS[1] * self.second + (1 - BETAS[1]) * gradient**2
        mean, variance = self.first / (1 - BETAS[0] ** self.steps), self.second / (1 - BETAS[1] ** self.steps)
        epsilon = EPSILON / (1 if way.startswith("fused") else math.sqrt(1 - BETAS[1] ** self.steps))
        self.value = self.value - RATE * mean / (variance.sqrt() + epsilon)
        if way.startswith("memory"):
            self.value = self.value.to(WAYS[way][0]).double()


def by_hand(model: nn.Module) -> dict[str, Hand]:
    return {name: Hand(parameter) for name, parameter in model.named_parameters()}


def gradients_of(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Eighths up to 4, which every precision holds exactly."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(-32, 33, parameter.shape, generator=chance) / 8
        for name, parameter in model.named_parameters()
    }


def step(optimizer: FairseqOptimizer, model: nn.Module, hand: dict[str, Hand], way: str, seed: int) -> None:
    """The same update by fairseq and by hand."""
    gradients = gradients_of(model, seed)
    optimizer.zero_grad()
    loss = sum((parameter.float() * gradients[name]).sum() for name, parameter in model.named_parameters())
    optimizer.backward(loss)
    optimizer.clip_grad_norm(0.0)
    optimizer.step()
    for name, one in hand.items():
        one.step(gradients[name], way)


def assert_same(optimizer: FairseqOptimizer, model: nn.Module, hand: dict[str, Hand], way: str) -> None:
    """Values, masters, moments and steps."""
    moments = moments_of(optimizer, model)
    dtype = WAYS[way][0]
    for name, parameter in model.named_parameters():
        one, known = hand[name], moments[name]
        if known.master is not None:
            torch.testing.assert_close(known.master.double(), one.value, rtol=1e-6, atol=1e-6, msg=name)
            assert torch.equal(parameter, known.master.to(dtype)), name
        tolerance = 1e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(parameter.double(), one.value, rtol=tolerance, atol=tolerance, msg=name)
        if one.steps == 0:
            assert not known.state
            continue
        assert known.state["step"] == one.steps, name
        assert known.state["exp_avg"].dtype == torch.float32, name
        torch.testing.assert_close(known.state["exp_avg"].double(), one.first, rtol=1e-6, atol=1e-6, msg=name)
        torch.testing.assert_close(known.state["exp_avg_sq"].double(), one.second, rtol=1e-6, atol=1e-6, msg=name)


# --- growth by hand --------------------------------------------------------------------------------------------------

SDT = {"encoder_layers": 2, "decoder_layers": 1, "encoder_block_size": 1, "share_all_embeddings": True}


def shallow(way: str, family: str = "sdt_transformer", **options: Any) -> nn.Module:
    return build_tiny(family, **(options or SDT)).to(WAYS[way][0])


def grow_sdt(model: nn.Module) -> ParameterMap:
    """From 2 encoder layers to 4."""
    return grow(model, "sdt_transformer", {"encoder": [0, 1, 0, 1]}, **SDT)


def grow_by_hand(hand: dict[str, Hand], model: nn.Module) -> dict[str, Hand]:
    """Layers and block norms 2 and 3 are copies of 0 and 1 in all; rows 3 and 4 of the connection are new."""
    grown = {}
    for name, parameter in model.named_parameters():
        source = re.sub(
            r"(encoder\.layers|encoder\.connection\.norms)\.([23])\.", lambda m: f"{m[1]}.{int(m[2]) - 2}.", name
        )
        grown[name] = copy.deepcopy(hand[source]) if source in hand else Hand(parameter)
    new = [name for name, one in grown.items() if one.steps == 0]
    assert new == ["encoder.connection.rows.3", "encoder.connection.rows.4"]
    return grown


# --- tests -----------------------------------------------------------------------------------------------------------


@every_way
def test_adam_goes_on_as_by_hand(way: str) -> None:
    model = shallow(way)
    optimizer, hand = optimizer_of(way, model), by_hand(model)
    for seed in (1, 2, 3):
        step(optimizer, model, hand, way, seed)
    assert_same(optimizer, model, hand, way)

    moments = moments_of(optimizer, model)
    names = grow_sdt(model)
    grown, hand = optimizer_of(way, model), grow_by_hand(hand, model)
    give_moments(grown, model, moments, names)
    if way.endswith("fp16, flat"):
        # One vector has one number of steps.
        for name in ("encoder.connection.rows.3", "encoder.connection.rows.4"):
            assert moments_of(grown, model)[name].state["step"] == 3
            hand[name].steps = 3
    assert_same(grown, model, hand, way)

    for seed in (4, 5):
        step(grown, model, hand, way, seed)
        assert_same(grown, model, hand, way)


@pytest.mark.parametrize("way", ["fp32", "bf16", "fp16, flat"])
@pytest.mark.parametrize("options", [{}, {"depthwise_gate_scope": "model"}, {"depthwise_sharing": "all"}], ids=str)
def test_shared_gates_have_one_state(way: str, options: dict[str, str]) -> None:
    """Gates stand under the names of all layers; the one state stays what it was, whatever the table says."""
    family = "depthwise_lstm_transformer"
    model = build_tiny(family, **options).to(WAYS[way][0])
    optimizer, hand = optimizer_of(way, model), by_hand(model)
    for seed in (1, 2):
        step(optimizer, model, hand, way, seed)
    moments = moments_of(optimizer, model)
    names = grow(model, family, {"encoder": [0, 1, 2, 0, 1, 2]}, **options)
    grown = optimizer_of(way, model)
    give_moments(grown, model, moments, names)
    hand_of_deep = {}
    for name, _ in model.named_parameters():
        source = re.sub(r"encoder\.layers\.([345])\.", lambda m: f"encoder.layers.{int(m[1]) - 3}.", name)
        source = source.replace("encoder.layers.0.input_norm", "encoder.layers.1.input_norm")
        hand_of_deep[name] = copy.deepcopy(hand[source])
    assert_same(grown, model, hand_of_deep, way)
    step(grown, model, hand_of_deep, way, 3)
    assert_same(grown, model, hand_of_deep, way)
