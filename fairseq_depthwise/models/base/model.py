"""The base class of every family's model: a stack that encodes, a stack that decodes, and auxiliary losses."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import Stacks, assemble
from fairseq_depthwise.models.base.config import EncoderDecoderConfig


class AuxiliaryLoss(NamedTuple):
    """A penalty that a model offers to the criterion ``label_smoothed_cross_entropy_with_auxiliary``.

    Attributes:
        value: a scalar with a gradient, logged under the penalty's name.
        weight: factor of the value for each target token, so that the minimum does not depend on the number and size of
            batches.
        option: the option that sets the weight.
    """

    value: Tensor
    weight: float
    option: str = ""


def take_auxiliary_losses(net_output: Any) -> dict[str, AuxiliaryLoss]:
    """Remove the auxiliary losses from a model's output and return them, name -> loss.

    Models that are not ours return other things besides their scores, or None.
    """
    extra = net_output[1]
    return extra.pop("auxiliary_losses", {}) if isinstance(extra, dict) else {}


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside fairseq's wrappers for several processes, which have it as their ``module``."""
    while isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model


class StackModel(FairseqEncoderDecoderModel):
    """A ``StackEncoder`` and a ``StackDecoder``."""

    #: Each family's class sets these: its options, and what builds its layers.
    options: type[EncoderDecoderConfig]
    stacks: type[Stacks]

    #: The values of the options.
    config: Any

    #: fairseq reads this when it is to print alignments. True lets it run finished sentences once more to get their
    #: attention weights; otherwise it expects weights from every step of the beam search.
    full_context_alignment = True

    @classmethod
    def build_model(cls, cfg: Any, task: FairseqTask) -> StackModel:
        """Build the model for a task's dictionaries; raise UserError for wrong options."""
        config = cls.options.complete(cfg)
        model = cls(*assemble(cls.stacks(config), task))
        model.config = config
        return model

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None, prev_output_tokens: Tensor, **options: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Encode (B x S), decode (B x T), and compute what the model adds to the loss.

        Returns what the decoder does, with ``auxiliary_losses`` in its dictionary: PyTorch's data parallel wrapper
        looks in a model's output for parameters in use, and some are used by these losses only. ``options`` are those
        of ``StackDecoder.forward``.
        """
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, return_all_hiddens=self.reads_encoder_states)
        output, extra = self.decoder(prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **options)
        return output, {**extra, "auxiliary_losses": self.auxiliary_losses(encoder_out)}

    @property
    def reads_encoder_states(self) -> bool:
        """Whether :meth:`auxiliary_losses` reads the outputs of the encoder's layers."""
        return False

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Return name -> penalty; families that have some override this. ``encoder_out``: what the encoder returned."""
        return {}

    def get_targets(self, sample: dict[str, Any], net_output: tuple[Tensor, Any]) -> Tensor:
        """Return the target tokens, as every criterion asks; refuse one that leaves out auxiliary losses."""
        # Our criterions have taken them by now; what is still there would silently not be trained with.
        ignored_losses = take_auxiliary_losses(net_output) if self.training else {}
        for name, loss in ignored_losses.items():
            raise UserError(
                f"{loss.option or name} {loss.weight:g} would change nothing: this criterion knows the translation "
                "loss only; train with --criterion label_smoothed_cross_entropy_with_auxiliary"
            )
        targets: Tensor = sample["target"]
        return targets
