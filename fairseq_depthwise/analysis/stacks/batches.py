"""Batches that run through the stacks of a model of any family, for the outputs of all layers.

The decoder reads the reference, as in training and validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.models.base.decoder import StackDecoder
from fairseq_depthwise.models.base.encoder import StackEncoder
from fairseq_depthwise.modules.stack import SIDES

_STACKS = {"encoder": (StackEncoder, TransformerEncoderBase), "decoder": (StackDecoder, TransformerDecoderBase)}


@dataclass(frozen=True)
class StackBatch:
    """A batch that is ready to run.

    Attributes:
        model: in evaluation mode.
        net_input: as fairseq makes it, with ``src_tokens`` (B x S) and for a decoder ``prev_output_tokens`` (B x T).
        padding: of each side, B x S or B x T, True at padding.
    """

    model: Any
    net_input: dict[str, Tensor]
    padding: dict[str, Tensor]

    @torch.no_grad()
    def run(self) -> dict[str, list[Tensor]]:
        """Return the embedding (after positions) and the output of each layer, L + 1 times T x B x C, of each side."""
        encoded = self.model.encoder(
            self.net_input["src_tokens"], src_lengths=self.net_input.get("src_lengths"), return_all_hiddens=True
        )
        states = {"encoder": encoded["encoder_states"]}
        if "decoder" in self.padding:
            _, extra = self.model.decoder(self.net_input["prev_output_tokens"], encoder_out=encoded, features_only=True)
            states["decoder"] = extra["inner_states"]
        return {side: states[side] for side in self.padding}


def stack_batches(
    loaded: LoadedModel, batches: Iterable[dict[str, Any]], sides: Iterable[str] = SIDES
) -> Iterator[StackBatch]:
    """Yield the batches of :meth:`LoadedModel.batches`, ready to run.

    Args:
        loaded: a model of ours or a ``transformer`` of fairseq.
        batches: as fairseq makes them.
        sides: which of :data:`SIDES` to run.

    Raises:
        UserError: the model has no such stacks, or the data has no references for the decoder.
    """
    sides = tuple(sides)
    for side in sides:
        if not isinstance(getattr(loaded.model, side, None), _STACKS[side]):
            raise UserError(
                f"{loaded.path} holds a model of the architecture {loaded.architecture}, whose {side} is no stack of "
                "Transformer layers; give a model of this plugin, or a transformer of fairseq's"
            )
    dictionaries = {"encoder": loaded.task.source_dictionary, "decoder": loaded.task.target_dictionary}
    for batch in batches:
        tokens = {"encoder": batch["net_input"]["src_tokens"], "decoder": batch["net_input"].get("prev_output_tokens")}
        if "decoder" in sides and tokens["decoder"] is None:
            raise UserError(
                f"--data {loaded.data} has no target sentences for the decoder to read; give data with both languages, "
                "or --side encoder"
            )
        padding = {side: tokens[side].eq(dictionaries[side].pad()) for side in sides}
        yield StackBatch(loaded.model, batch["net_input"], padding)
