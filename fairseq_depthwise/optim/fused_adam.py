"""``--optimizer fused_adam``: Adam with PyTorch's fused kernels, one pass over parameters, gradients and moments.

With decoupled weight decay, as fairseq's ``adam`` has it (Loshchilov and Hutter 2019). For a parameter x, its gradient
g, the rate r, weight decay w and the t-th step::

    m = b1 m + (1 - b1) g            v = b2 v + (1 - b2) g^2
    x = (1 - r w) x - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

fairseq's ``adam`` adds eps to sqrt(v) before that is corrected, and so its eps counts 1 / sqrt(1 - b2^t) times as much:
7 times at the first step with b2 = 0.98, as much as here after some hundred. Where eps is small beside the gradients,
both are the same up to rounding.

The sample size and clipping scale the gradients. ``adam`` goes through them for each; here both are a factor, which the
kernel applies when it reads them.
"""

import ast
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.optim.adam_state import state_as_loaded, state_as_saved

log = logging.getLogger(__name__)


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
    """Adam by one kernel; by PyTorch's ``foreach`` operations, and a line in the log, where there is none.

    Checkpoints are those of ``adam``, and either goes on from the other's (see :mod:`.adam_state`).

    Raises:
        UserError: an option's value is not possible, or the parameters are in half precision, whose moments the
            kernels would keep in half precision too.
    """

    def __init__(self, cfg: Any, params: Iterable[nn.Parameter]) -> None:
        super().__init__(cfg)
        params = list(params)
        if any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in params):
            raise UserError(
                "--optimizer fused_adam updates float32 values, and --memory-efficient-bf16 (or -fp16) keeps none; "
                "leave it out, or give --optimizer adam"
            )
        fused = all(is_fused_possible(kind) for kind in sorted({parameter.device.type for parameter in params}))
        self._optimizer = torch.optim.AdamW(params, **self.optimizer_config, fused=fused, foreach=not fused)
        #: What the gradients count, as a factor that no kernel has applied yet.
        self._factor: float | Tensor = 1.0

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """What :class:`torch.optim.AdamW` is given."""
        rates = self.cfg.lr
        return {
            "lr": rates[0] if isinstance(rates, Sequence) else rates,
            "betas": _read_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    @property
    def supports_flat_params(self) -> bool:
        """Each value is updated for itself, so fairseq may make one vector of all."""
        return True

    # --- an update ---------------------------------------------------------------------------------------------------

    def multiply_grads(self, c: float | Tensor) -> None:
        """Let the gradients count ``c`` times as much."""
        self._factor = self._factor * c

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the gradients' norm; from now on they count as if it were at most ``max_norm``, unless that is 0."""
        norm: Tensor = super().clip_grad_norm(0, aggregate_norm_fn) * self._factor
        if max_norm > 0:
            self.multiply_grads((float(max_norm) / (norm + 1e-6)).clamp(max=1))
        return norm

    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        """Update the parameters with gradients that count 1 / ``scale`` times as much as so far; ``groups`` is unused.

        With the kernel, ``p.grad`` holds afterwards what was used.
        """
        self.multiply_grads(1 / scale)
        factor, self._factor = self._factor, 1.0
        optimizer: Any = self.optimizer
        if not torch.is_tensor(factor) and factor == 1.0:
            optimizer.step(closure)
        elif optimizer.param_groups[0].get("fused"):
            # Here the kernel looks for what torch.amp.GradScaler divides gradients by.
            optimizer.grad_scale = torch.as_tensor(1 / factor, dtype=torch.float32)
            try:
                optimizer.step(closure)
            finally:
                del optimizer.grad_scale
        else:
            super().multiply_grads(factor)
            optimizer.step(closure)

    def zero_grad(self) -> None:
        """Forget the gradients, and what they were to be multiplied by."""
        self._factor = 1.0
        super().zero_grad()

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state as ``adam`` has it."""
        return state_as_saved(self.optimizer.state_dict())

    def load_state_dict(
        self, state_dict: Mapping[str, Any], optimizer_overrides: Mapping[str, Any] | None = None
    ) -> None:
        """Continue from the state of any Adam; rate, betas, eps and weight decay are the state's, unless overridden.

        Raises:
            UserError: it is that of another optimizer.
        """
        super().load_state_dict(state_as_loaded(state_dict, self.param_groups), optimizer_overrides)

    def average_params(self) -> None:
        """Average the processes' moments, for ``--use-bmuf``."""
        processes = torch.distributed.get_world_size()
        for state in self.optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                torch.distributed.all_reduce(state[name].div_(processes))


# fairseq goes on from a checkpoint's optimizer only if the class is called as the one that wrote it, and adam may have.
FusedAdam.__name__ = FairseqAdam.__name__


@functools.cache
def is_fused_possible(device: str) -> bool:
    """Return whether this PyTorch updates float32 values there with its kernel; log it where not.

    CUDA has had one since PyTorch 2.0, the CPU since 2.4. A trial tells, so that no list of devices and versions has to
    be kept.
    """
    probe = nn.Parameter(torch.zeros(1, device=device))
    probe.grad = torch.zeros_like(probe)
    try:
        torch.optim.AdamW([probe], fused=True).step()
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        log.info(f"--optimizer fused_adam has no fused kernel here, so foreach is used: {reason}")
        return False
    return True


def _read_betas(given: Any) -> tuple[float, float]:
    """Read two numbers from fairseq's text or list.

    Raises:
        UserError: it is anything else.
    """
    try:
        values = ast.literal_eval(given) if isinstance(given, str) else given
        first, second = (float(value) for value in values)
    except (ValueError, TypeError, SyntaxError):
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise UserError(
            f"--adam-betas {given!r} are not two numbers of at least 0 and below 1; give them as '(0.9, 0.98)'"
        )
    return first, second
