"""What half-precision training updates is saved and comes back, but not over weights that were changed meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim import fp16_optimizer
from torch import nn

TYPES = (torch.bfloat16, torch.float16)


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


@pytest.mark.parametrize("kind", TYPES)
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


def test_others_masters_and_none_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [nn.Parameter(torch.randn(3, 5).bfloat16())]
    optimizer = optimizer_of(weights, flat=False, monkeypatch=monkeypatch)
    expected = values(optimizer)
    moments = {"state": {}, "param_groups": [{"params": [0]}]}
    for state in (moments, {**moments, "master_weights": None}, {**moments, "master_weights": [torch.ones(4)]}):
        optimizer.load_state_dict(state)
        assert torch.equal(values(optimizer), expected)
