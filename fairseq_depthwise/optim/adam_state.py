"""Adam's state between PyTorch's optimizer and checkpoints, which are those of fairseq's ``adam``.

Both keep the means ``exp_avg`` and ``exp_avg_sq`` of each parameter. The number of its steps is an integer with
``adam``, a tensor with PyTorch; apex's Adam, which fairseq takes for ``adam`` on a GPU where it is installed, may have
one number for all. Which kernel computes is no part of the state: it may be another where a training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_compat import UserError

#: Options of a group of parameters that belong to its state; fairseq's trainer sets the rate anew.
_OPTIONS = ("lr", "betas", "eps", "weight_decay")

_MEANS = ("exp_avg", "exp_avg_sq")


def state_as_saved(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``torch.optim.AdamW.state_dict()`` as ``adam`` would have it; the means are the same tensors."""
    return {
        "state": {
            number: {"step": int(of_one["step"]), **{name: of_one[name] for name in _MEANS}}
            for number, of_one in state["state"].items()
        },
        "param_groups": [
            {**{name: group[name] for name in _OPTIONS}, "amsgrad": False, "params": group["params"]}
            for group in state["param_groups"]
        ],
    }


def state_as_loaded(saved: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what ``torch.optim.AdamW.load_state_dict`` takes, from a checkpoint of any Adam.

    Args:
        saved: as ``adam``, ``fused_adam``, PyTorch or apex wrote it.
        groups: of the optimizer that goes on; what is no state stays as it is there.

    Raises:
        UserError: it is the state of another optimizer.
    """
    saved_groups = saved["param_groups"]
    if len(saved_groups) != len(groups):
        raise UserError(
            f"the checkpoint's optimizer has {len(saved_groups)} groups of parameters, and --optimizer fused_adam here "
            f"{len(groups)}; give --reset-optimizer"
        )
    steps = {number: group.get("step") for group in saved_groups for number in group["params"]}
    state = {}
    for number, of_one in saved["state"].items():
        step = of_one.get("step", steps.get(number))
        if step is None or any(name not in of_one for name in _MEANS) or "max_exp_avg_sq" in of_one:
            raise UserError(
                f"the checkpoint's optimizer keeps {', '.join(of_one) or 'nothing'} of a parameter, and --optimizer "
                f"fused_adam needs step, {' and '.join(_MEANS)}; give --reset-optimizer, or the --optimizer it was "
                "trained with"
            )
        state[number] = {"step": int(step), **{name: of_one[name] for name in _MEANS}}
    merged = [
        {**own, **{name: group[name] for name in _OPTIONS if name in group}, "params": group["params"]}
        for own, group in zip(groups, saved_groups, strict=True)
    ]
    return {"state": state, "param_groups": merged}
