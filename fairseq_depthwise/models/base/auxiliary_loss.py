"""What a model adds to the translation loss."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from fairseq_compat import UserError


class AuxiliaryLoss(NamedTuple):
    """A penalty that a model offers to the criterion ``label_smoothed_cross_entropy_with_auxiliary``.

    Attributes:
        value: what is logged under its name; a scalar with a gradient.
        weight: what the value is multiplied with, for each target token, before it is added to the summed translation
            loss. The minimum then depends on neither the batch size, the accumulation nor the number of processes.
        option: the option that sets the weight, for the message where a criterion leaves the loss out.
    """

    value: Tensor
    weight: float
    option: str = ""


def take_auxiliary_losses(net_output: Any) -> dict[str, AuxiliaryLoss]:
    """Take out of a model's output what it offers, name -> loss.

    Models that are not ours return other things beside their scores, or None.
    """
    extra = net_output[1]
    return extra.pop("auxiliary_losses", {}) if isinstance(extra, dict) else {}


def refuse_auxiliary_losses(net_output: Any) -> None:
    """Make sure that the criterion that trains has taken the losses out of the output.

    Raises:
        UserError: it has not, so that they would change nothing.
    """
    for name, loss in take_auxiliary_losses(net_output).items():
        raise UserError(
            f"{loss.option or name} {loss.weight:g} would change nothing: this criterion knows the translation loss "
            "only; train with --criterion label_smoothed_cross_entropy_with_auxiliary"
        )
