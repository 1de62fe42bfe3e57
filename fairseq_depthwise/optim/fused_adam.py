"""``--optimizer fused_adam``: ``torch.optim.AdamW(fused=True)``, one pass over parameters, gradients and moments.

Weight decay is decoupled (Loshchilov and Hutter 2019), as in fairseq's ``adam``. For a parameter x, its gradient g, the
rate r, weight decay w and step t::

    m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
    x = (1 - r w) x - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

fairseq's ``adam`` adds eps to sqrt(v) before the correction, so its eps is effectively 1 / sqrt(1 - b2^t) times as
large: with b2 = 0.98 seven times at the first step, and equal after some hundred. Where eps is small compared with the
gradients, both are equal up to rounding.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import nn

from fairseq_compat import UserError


# fairseq reads these annotations at run time: no `from __future__ import annotations` here.
@dataclass
class FusedAdamConfig(FairseqDataclass):
    """The options of fairseq's ``adam``."""

    adam_betas: Any = field(
        default=(0.9, 0.999), metadata={"help": "decay of the means of gradients and of their squares: b1 and b2"}
    )
    adam_eps: float = field(default=1e-8, metadata={"help": "added to the root of the corrected mean of squares"})
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled weight decay; times the learning rate"})
    lr: list[float] = II("optimization.lr")  # noqa: RUF009  # a string: omegaconf puts the other option's value there


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FusedAdam(FairseqOptimizer):
    """PyTorch's fused AdamW as an optimizer of fairseq.

    Parameters in half precision are refused, as the moments would be in half precision as well.
    """

    #: Each value is updated by itself, so fairseq may join all parameters to one vector.
    supports_flat_params = True

    def __init__(self, cfg: Any, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        params = list(params)
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in params):
            raise UserError(
                "--optimizer fused_adam updates float32 values, and --memory-efficient-bf16 (or -fp16) has none; "
                "leave it out, or give --optimizer adam"
            )
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The arguments of :class:`torch.optim.AdamW`."""
        rates = self.cfg.lr
        # The command line has a string such as "(0.9, 0.98)".
        betas = self.cfg.adam_betas
        if isinstance(betas, str):
            betas = ast.literal_eval(betas)
        return {
            "lr": rates[0] if isinstance(rates, Sequence) else rates,
            "betas": tuple(betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def load_state_dict(
        self, state_dict: Mapping[str, Any], optimizer_overrides: Mapping[str, Any] | None = None
    ) -> None:
        """Resume with a checkpoint's rate and moments, whose shapes must fit; all else is as the options say."""
        groups = []
        for group, saved_group in zip(self.param_groups, state_dict["param_groups"], strict=True):
            groups.append({**group, "params": saved_group["params"], "lr": saved_group["lr"]})
        super().load_state_dict({**state_dict, "param_groups": groups}, optimizer_overrides)

        for parameter, state in self._optimizer.state.items():
            for name, value in state.items():
                expected_shape = () if name == "step" else parameter.shape
                if value.shape != expected_shape:
                    raise UserError(f"the optimizer's {name} in the checkpoint is not its model's; --reset-optimizer")
                if name != "step":
                    # The kernel ignores strides, so moments must be laid out like their parameter.
                    state[name] = torch.empty_like(parameter).copy_(value)


# fairseq resumes from a checkpoint only if the optimizer's class has the recorded name, which is this in older ones.
FusedAdam.__name__ = FairseqAdam.__name__
