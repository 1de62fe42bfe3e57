"""A training in bf16 or fp16 that is resumed goes on from its rounded weights, not from the float32 ones it updates.

fairseq keeps a float32 master of every parameter and saves only the model's half-precision values. Here the masters
are in the optimizer's state, and a resumed training ends like one that was never stopped. A checkpoint without them is
loaded as before, and a weight that was changed meanwhile counts for more than its master.
"""

from collections.abc import Iterator
from typing import Any

#: In ``last_optimizer_state``: the masters in the order of the parameters, one by one or as one vector.
ENTRY = "master_weights"


def adjust(module: Any) -> Iterator[None]:
    yield

    optimizer = module._FP16OptimizerMixin
    original_state, original_load = optimizer.state_dict, optimizer.load_state_dict

    def state_dict(self: Any) -> dict[str, Any]:
        return {**original_state(self), ENTRY: [master.detach() for master in _masters(self)]}

    def load_state_dict(self: Any, state: dict[str, Any], optimizer_overrides: Any = None) -> None:
        original_load(self, state, optimizer_overrides)
        _restore(self, state.get(ENTRY) or [])

    optimizer.state_dict, optimizer.load_state_dict = state_dict, load_state_dict


def _masters(optimizer: Any) -> list[Any]:
    """Return the float32 values that an optimizer updates: one of each parameter, or one vector of all."""
    masters = optimizer.fp32_params
    return list(masters.values()) if isinstance(masters, dict) else list(masters)


def _restore(optimizer: Any, saved: list[Any]) -> None:
    """Give saved masters to the weights that they belong to, which are those that they are rounded to."""
    import torch

    weights, masters = optimizer.fp16_params, _masters(optimizer)
    if sum(map(torch.numel, saved)) != sum(map(torch.numel, weights)):
        return
    with torch.no_grad():
        values = torch.cat([value.reshape(-1) for value in saved]) if saved else torch.empty(0)
        updated = masters[0] if len(masters) == 1 else None
        start = 0
        for position, weight in enumerate(weights):
            span = slice(start, start := start + weight.numel())
            value = values[span].view_as(weight).to(weight.device)
            master = masters[position] if updated is None else updated.data.view(-1)[span].view_as(weight)
            master.copy_(torch.where(value.to(weight.dtype) == weight, value, master))
