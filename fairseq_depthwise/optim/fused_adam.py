"""``--optimizer fused_adam``: ``torch.optim.AdamW(fused=True)``, one pass over parameters, gradients and moments.

With decoupled weight decay, as fairseq's ``adam`` has it (Loshchilov and Hutter 2019). For a parameter x, its gradient
g, the rate r, weight decay w and the t-th step::

    m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
    x = (1 - r w) x - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

fairseq's ``adam`` adds eps to sqrt(v) before that is corrected, and so its eps counts 1 / sqrt(1 - b2^t) times as much:
7 times at the first step with b2 = 0.98, as much as here after some hundred. Where eps is small beside the gradients,
both are the same up to rounding.
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
    """PyTorch's fused AdamW as an optimizer of fairseq; half precision is refused, as the moments would be in it."""

    supports_flat_params = True  # each value is updated for itself, so fairseq may make one vector of all

    def __init__(self, cfg: Any, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        params = list(params)
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in params):
            raise UserError(
                "--optimizer fused_adam updates float32 values, and --memory-efficient-bf16 (or -fp16) keeps none; "
                "leave it out, or give --optimizer adam"
            )
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """What :class:`torch.optim.AdamW` is given."""
        rates, betas = self.cfg.lr, self.cfg.adam_betas
        return {
            "lr": rates[0] if isinstance(rates, Sequence) else rates,
            "betas": tuple(ast.literal_eval(betas) if isinstance(betas, str) else betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def load_state_dict(
        self, state_dict: Mapping[str, Any], optimizer_overrides: Mapping[str, Any] | None = None
    ) -> None:
        """Continue with a checkpoint's rate and its moments, which must fit; all else is as the options say."""
        groups = [
            {**own, "params": saved["params"], "lr": saved["lr"]}
            for own, saved in zip(self.param_groups, state_dict["param_groups"], strict=True)
        ]
        super().load_state_dict({**state_dict, "param_groups": groups}, optimizer_overrides)
        for parameter, state in self._optimizer.state.items():
            for name, value in state.items():
                if value.shape != (() if name == "step" else parameter.shape):
                    raise UserError(f"the optimizer's {name} in the checkpoint is not its model's; --reset-optimizer")
                if name != "step":  # the kernel looks at no strides
                    state[name] = torch.empty_like(parameter).copy_(value)


# fairseq goes on from a checkpoint only if the class is called as the one that wrote it: older ones say this name.
FusedAdam.__name__ = FairseqAdam.__name__
