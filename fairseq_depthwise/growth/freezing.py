"""Parameters that no longer train once the model has grown (``--growth-freeze``).

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 6.3: the parameters of a trained model are
fixed, and it is stacked into a deeper one (Stack-12L). A frozen parameter has ``requires_grad`` False, so that
optimizers of any precision and data parallel wrappers ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_depthwise.options import SIDES

if TYPE_CHECKING:
    from torch import nn

#: copied: the old layers of stacks that grow, of which new layers are copies; trained: all that the model had before it
#: grew.
FREEZES = ("none", "copied", "trained")

_LAYERS = tuple(f"{side}.layers." for side in SIDES)


class LastGrowth(NamedTuple):
    """What a checkpoint records, in its ``task_state``, of the latest growth.

    ``new``: names of the parameters that were added. ``frozen``: what no longer trains, one of ``FREEZES``.
    """

    new: tuple[str, ...] = ()
    frozen: str = "none"

    @classmethod
    def before(cls, state: Mapping[str, Any]) -> LastGrowth:
        """Read the record of a checkpoint."""
        recorded = (state.get("task_state") or {}).get("last_growth") or {}
        return cls(tuple(recorded.get("new", ())), recorded.get("frozen", "none"))

    def task_state(self) -> dict[str, Any]:
        """Return the entry for a checkpoint's ``task_state``."""
        return {"last_growth": {"new": list(self.new), "frozen": self.frozen}} if self.new else {}

    def freeze(self, model: nn.Module) -> int:
        """Freeze parameters of a grown model, before its optimizer is built; return how many numbers are frozen.

        A parameter that old and new layers share counts as old.
        """
        if self.frozen == "none" or not self.new:
            return 0
        new = set(self.new)
        grown_stacks: tuple[str, ...] = ()
        for stack in _LAYERS:
            if any(name.startswith(stack) for name in new):
                grown_stacks += (stack,)
        # All names of a parameter: one that old and new layers share is frozen under its old name.
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if name not in new and (self.frozen == "trained" or name.startswith(grown_stacks)):
                parameter.requires_grad_(False)
        return sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
