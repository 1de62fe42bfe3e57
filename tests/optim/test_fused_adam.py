"""``--optimizer fused_adam``: its updates, what scales gradients, its checkpoints and those of ``adam``, refusals."""

from __future__ import annotations

import copy
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import optim
from fairseq.optim import FairseqOptimizer
from growing_trainer import PEAK, train, trainer_of
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.optim import fused_adam

SHAPES = [(3, 5), (7,), (2, 3, 4), ()]
#: What fairseq's ``adam`` has besides.
OF_ADAM = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}

RATE, BETAS, EPSILON, DECAY = 0.03, (0.9, 0.98), 1e-4, 0.1


@pytest.fixture(params=["fused", "foreach"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel that the optimizers of a test find possible."""
    if request.param == "foreach":
        monkeypatch.setattr(fused_adam, "is_fused_possible", lambda device: False)
    return str(request.param)


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    chance = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=chance).to(dtype)) for shape in SHAPES]


def gradients(seed: int) -> list[Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=chance) * 10.0**-number for number, shape in enumerate(SHAPES)]


def optimizer_of(params: list[nn.Parameter], name: str = "fused_adam", **options: Any) -> FairseqOptimizer:
    """As fairseq builds it from a command line."""
    given = {"adam_betas": str(BETAS), "adam_eps": EPSILON, "weight_decay": DECAY, "lr": [RATE], **options}
    if name == "adam":
        given |= OF_ADAM
    return optim.build_optimizer(OmegaConf.create({"_name": name, **given}), params)


def take_steps(optimizer: FairseqOptimizer, params: list[nn.Parameter], seeds: range, clip: float = 0.0) -> None:
    """As fairseq's trainer takes them: gradients of sums, the number of tokens, clipping, the step."""
    for seed in seeds:
        optimizer.zero_grad()
        for parameter, gradient in zip(params, gradients(seed), strict=True):
            parameter.grad = gradient * (seed + 2)
        optimizer.multiply_grads(1 / (seed + 2))
        optimizer.clip_grad_norm(clip)
        optimizer.step()


def assert_equal(ones: list[nn.Parameter], others: list[nn.Parameter]) -> None:
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one, other)


# --- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_updates_are_those_of_the_equations(kernel: str, clip: float) -> None:
    """A second reading, in NumPy's float64."""
    params = parameters()
    values = [parameter.detach().numpy().astype(np.float64) for parameter in params]
    take_steps(optimizer_of(params), params, range(20), clip)
    means = [np.zeros_like(value) for value in values]
    squares = [np.zeros_like(value) for value in values]
    for number in range(20):
        given = [gradient.numpy().astype(np.float64) for gradient in gradients(number)]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in given))
        scale = min(1, clip / norm) if clip else 1
        for place, gradient in enumerate(given):
            means[place] = 0.9 * means[place] + 0.1 * scale * gradient
            squares[place] = 0.98 * squares[place] + 0.02 * (scale * gradient) ** 2
            mean, square = means[place] / (1 - 0.9 ** (number + 1)), squares[place] / (1 - 0.98 ** (number + 1))
            values[place] = values[place] - RATE * DECAY * values[place] - RATE * mean / (np.sqrt(square) + EPSILON)
    for parameter, value in zip(params, values, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=2e-5, atol=2e-6)


def test_the_norm_is_that_of_the_scaled_gradients_and_scales_end_with_the_step(kernel: str) -> None:
    params, plain = parameters(), parameters()
    optimizer, reference = optimizer_of(params), optimizer_of(plain)
    for parameter, other, gradient in zip(params, plain, gradients(1), strict=True):
        parameter.grad, other.grad = 8 * gradient, gradient.clone()
    expected = torch.stack([gradient.norm() for gradient in gradients(1)]).norm()
    optimizer.multiply_grads(torch.tensor(0.5))
    optimizer.multiply_grads(0.5)
    torch.testing.assert_close(optimizer.clip_grad_norm(0.0), 2 * expected)
    optimizer.step(scale=2.0)
    reference.step()
    assert_equal(params, plain)
    for parameter, other, gradient in zip(params, plain, gradients(2), strict=True):
        parameter.grad, other.grad = gradient.clone(), gradient.clone()
    optimizer.step()
    reference.step()
    assert_equal(params, plain)


def test_without_a_kernel_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(torch.optim.AdamW):
        def __init__(self, params: Any, fused: bool = False, **options: Any) -> None:
            if fused:
                raise RuntimeError("no kernel for this device\nand a trace")
            super().__init__(params, **options)

    fused_adam.is_fused_possible.cache_clear()
    monkeypatch.setattr(torch.optim, "AdamW", Refusing)
    try:
        with caplog.at_level(logging.INFO, "fairseq_depthwise"):
            for _ in range(2):
                params = parameters()
                take_steps(optimizer_of(params), params, range(2))
    finally:
        fused_adam.is_fused_possible.cache_clear()
    (record,) = caplog.records
    assert re.search("--optimizer fused_adam .*: no kernel for this device$", record.getMessage())


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_a_saved_state_goes_on_bit_for_bit(kernel: str) -> None:
    params = parameters()
    optimizer = optimizer_of(params)
    take_steps(optimizer, params, range(3))
    again = [nn.Parameter(parameter.detach().clone()) for parameter in params]
    resumed = optimizer_of(again)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, those in ((optimizer, params), (resumed, again)):
        take_steps(one, those, range(3, 6), clip=0.5)
    assert_equal(params, again)


@pytest.mark.parametrize(("first", "second"), [("adam", "fused_adam"), ("fused_adam", "adam")])
def test_adam_and_fused_adam_go_on_from_each_other(first: str, second: str) -> None:
    params, whole = parameters(), parameters()
    optimizer = optimizer_of(params, first, adam_eps=1e-9)
    take_steps(optimizer, params, range(3))
    resumed = optimizer_of(params, second, adam_eps=1e-9)
    saved = copy.deepcopy(optimizer.state_dict())
    resumed.load_state_dict(saved)
    take_steps(resumed, params, range(3, 8))
    take_steps(optimizer_of(whole, adam_eps=1e-9), whole, range(8))
    for one, other in zip(params, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert {of_one["step"] for of_one in resumed.state_dict()["state"].values()} == {8}
    # The two have the same entries, of the same types.
    fresh = resumed.state_dict()
    assert saved["param_groups"][0].keys() == fresh["param_groups"][0].keys()
    for number, of_one in saved["state"].items():
        assert {key: type(value) for key, value in of_one.items()} == {
            key: type(value) for key, value in fresh["state"][number].items()
        }


def test_the_kernel_is_not_part_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    params = parameters()
    with monkeypatch.context() as patched:
        patched.setattr(fused_adam, "is_fused_possible", lambda device: False)
        optimizer = optimizer_of(params)
        take_steps(optimizer, params, range(2))
    resumed = optimizer_of(params)
    resumed.load_state_dict(optimizer.state_dict(), {"lr": 0.5})
    assert (resumed.param_groups[0]["fused"], resumed.param_groups[0]["lr"]) == (True, 0.5)
    take_steps(resumed, params, range(2))


def test_moments_are_averaged_over_processes(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``--use-bmuf`` asks for; the sum over processes is that of two trainings here."""
    here, there = parameters(), parameters()
    optimizer, other = optimizer_of(here), optimizer_of(there)
    take_steps(optimizer, here, range(3))
    take_steps(other, there, range(10, 13))
    pairs = list(zip(moments_of(optimizer, here), moments_of(other, there), strict=True))
    expected = [(mine + theirs) / 2 for mine, theirs in pairs]
    others = iter(theirs / 2 for _, theirs in pairs)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.add_(next(others)))
    optimizer.average_params()
    for found, mean in zip(moments_of(optimizer, here), expected, strict=True):
        torch.testing.assert_close(found, mean)


def moments_of(optimizer: Any, params: list[nn.Parameter]) -> list[Tensor]:
    return [optimizer.optimizer.state[one][name].clone() for one in params for name in ("exp_avg", "exp_avg_sq")]


def test_steps_of_a_group_are_those_of_its_parameters() -> None:
    """apex has them so."""
    params, whole = parameters(), parameters()
    optimizer = optimizer_of(params)
    take_steps(optimizer, params, range(3))
    state = copy.deepcopy(optimizer.state_dict())
    for of_one in state["state"].values():
        del of_one["step"]
    state["param_groups"][0]["step"] = 3
    resumed = optimizer_of(params)
    resumed.load_state_dict(state)
    take_steps(resumed, params, range(3, 5))
    take_steps(optimizer_of(whole), whole, range(5))
    assert_equal(params, whole)


@pytest.mark.parametrize("state", [{"momentum_buffer": torch.ones(3, 5)}, {"step": 1, "exp_avg": torch.ones(3, 5)}, {}])
def test_the_state_of_another_optimizer_is_refused(state: dict[str, Any]) -> None:
    params = parameters()
    saved = {"state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0, 1, 2, 3]}]}
    with pytest.raises(UserError, match=r"step, exp_avg and exp_avg_sq; .*--reset-optimizer"):
        optimizer_of(params).load_state_dict(saved)
    with pytest.raises(UserError, match=r"2 groups of parameters, .*fused_adam here 1"):
        optimizer_of(params).load_state_dict({**saved, "param_groups": saved["param_groups"] * 2})


# --- fairseq's trainer -----------------------------------------------------------------------------------------------

FUSED = {"_name": "fused_adam", "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-9, "weight_decay": 0.01, "lr": [PEAK]}


FP16 = {"common__fp16": True, "common__fp16_no_flatten_grads": True, "common__fp16_init_scale": 4}


def state_of(trainer: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in trainer.get_model().state_dict().items()}


@pytest.mark.parametrize(
    ("names", "precision"),
    [
        (("fused_adam", "fused_adam"), {}),
        (("adam", "fused_adam"), {}),
        (("fused_adam", "adam"), {"common__bf16": True}),
        (("fused_adam", "fused_adam"), FP16),
        (("adam", "fused_adam"), FP16),
    ],
    ids=str,
)
def test_trainers_go_on_from_checkpoints(names: tuple[str, str], precision: dict[str, Any], tmp_path: Path) -> None:
    """Also after growth that keeps the moments; bit for bit where the optimizer stays.

    In half precision fairseq's checkpoints hold the model, but not the float32 masters.
    """
    changes = {
        "task__growth_optimizer_state": "keep", "model__dropout": 0.2, "optimization__clip_norm": 0.1, **precision,
    }  # fmt: skip
    first, second = (
        {
            **changes,
            "optimizer": {**FUSED, "_name": name, **(OF_ADAM if name == "adam" else {})},
            "task__save_dir": str(tmp_path),
        }
        for name in names
    )
    whole = trainer_of(**first)
    train(whole, 3)
    assert len(whole.get_model().encoder.layers) == 2
    path = str(tmp_path / "checkpoint_last.pt")
    whole.consolidate_optimizer()
    whole.save_checkpoint(path, {"train_iterator": {"epoch": 1, "iterations_in_epoch": 3}})
    again = trainer_of(**second)
    assert again.load_checkpoint(path) is not None
    train(again, 3)
    train(whole, 3)
    for name, value in state_of(whole).items():
        if names[0] == names[1] and not precision:
            assert torch.equal(value, state_of(again)[name]), name
        elif not name.endswith("key_projection.bias"):  # without effect, so that rounding is all of its gradient
            tolerance = 1e-3 if value.dtype == torch.float32 else 0.02
            torch.testing.assert_close(value, state_of(again)[name], rtol=tolerance, atol=tolerance)
    assert whole.get_num_updates() == again.get_num_updates() == 6


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match="--memory-efficient-bf16"):
        optimizer_of(parameters(dtype))


@pytest.mark.parametrize("betas", ["0.9", "(0.9, 1.0)", "(0.9, 0.98, 0.99)", "nine", "(-0.1, 0.9)", "('a', 'b')"])
def test_betas_are_two_numbers(betas: str) -> None:
    with pytest.raises(UserError, match="--adam-betas"):
        optimizer_of(parameters(), adam_betas=betas)
