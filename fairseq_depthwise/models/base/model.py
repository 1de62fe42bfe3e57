"""The model that every family's is a subclass of: a stack that encodes, a stack that decodes, and auxiliary losses."""

from __future__ import annotations

from typing import Any

from fairseq.models import FairseqEncoderDecoderModel
from torch import Tensor

from fairseq_depthwise.models.base.auxiliary_loss import AuxiliaryLoss, refuse_auxiliary_losses


class StackModel(FairseqEncoderDecoderModel):
    """A ``StackEncoder`` and a ``StackDecoder``."""

    #: fairseq reads this where alignments are asked for: True makes it run the finished sentences once more for their
    #: attention weights, instead of expecting the weights of every step of the beam search.
    full_context_alignment = True

    #: Whether :meth:`auxiliary_losses` reads the outputs of the encoder's layers.
    reads_encoder_states = False

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor | None, prev_output_tokens: Tensor, **options: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Encode, decode, and compute what the model adds to the loss, as training and validation need it.

        Args:
            src_tokens: B x S.
            src_lengths: B.
            prev_output_tokens: B x T.
            options: those of ``StackDecoder.forward``.

        Returns:
            what the decoder returns; its dictionary also has ``auxiliary_losses``. They are part of the output so that
            PyTorch's data parallel wrapper finds the parameters that only they use.
        """
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, return_all_hiddens=self.reads_encoder_states)
        output, extra = self.decoder(prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **options)
        return output, {**extra, "auxiliary_losses": self.auxiliary_losses(encoder_out)}

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Name -> penalty; families that have some override this. ``encoder_out``: what the encoder returned."""
        return {}

    def get_targets(self, sample: dict[str, Any], net_output: tuple[Tensor, Any]) -> Tensor:
        """The target tokens. Every criterion asks here, so that one which leaves auxiliary losses is refused here."""
        if self.training:
            refuse_auxiliary_losses(net_output)
        targets: Tensor = sample["target"]
        return targets
