"""A trained model as two programs of ``torch.export``, which are loaded with torch alone.

The programs are traced through the model's own layers: the encoder, which also computes what the decoder's
cross-attentions read, and one step of the decoder, whose state are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from fairseq_compat import UserError
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell
from fairseq_depthwise.models.linearized.model import LinearizedTransformer
from fairseq_depthwise.modules.decoding.cache import KeysValues
from fairseq_depthwise.modules.decoding.tensor_cache import TensorCache
from fairseq_depthwise.modules.stack import prepare_layers

#: How far a probability may be from the model's own.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2}

#: Sentences of a batch and rows of a step at most; torch wants a number.
_MOST_ROWS = 2**20

#: Where tracing notes which lines of which files an operation came from; files elsewhere say nothing to a reader.
_NOTES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


class EncoderProgram(nn.Module):
    """Source tokens to what every step of the decoder reads.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: StackModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.cross_attentions = nn.ModuleList(layer.cross_attention for layer in model.decoder.layers)
        # In evaluation they do not depend on the sentence. One of them may be an order of units that scipy finds.
        width = model.encoder.embedding.tokens.embedding_dim
        embedded = model.encoder.embedding.tokens.weight.new_zeros(1, 1, width)
        self.prepared = prepare_layers(model.encoder.layers, embedded, None)

    def forward(self, source_tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Source tokens (B x S) to cross keys and values (L x B x heads x S x head_dim) and padding (B x S)."""
        padding = source_tokens.eq(self.encoder.dictionary.pad())
        output, _ = self.encoder.run_layers(self.encoder.embedding(source_tokens), padding, self.prepared)
        attentions: Any = self.cross_attentions
        pairs: list[KeysValues] = [attention.encoder_keys(output) for attention in attentions]
        keys, values = (torch.stack(parts) for parts in zip(*pairs, strict=True))
        return keys, values, padding


class DecoderStepProgram(nn.Module):
    """The newest token of every row to the log-probabilities of the next.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: StackModel) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self,
        tokens: Tensor,
        own_keys: Tensor,
        own_values: Tensor,
        cross_keys: Tensor,
        cross_values: Tensor,
        source_padding: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step.

        Args:
            tokens: N, the newest of each row.
            own_keys: L x N x heads x t x head_dim: an empty slot, of zeros, and the tokens before; t is 1 at first.
            own_values: the same.
            cross_keys: L x N x heads x S x head_dim, of each row's sentence.
            cross_values: the same.
            source_padding: N x S, True at padding.

        Returns:
            log-probabilities (N x V, float32 unless the softmax is adaptive), and own keys and values for the next
            step, with t + 1 slots.
        """
        cache = TensorCache(KeysValues(own_keys, own_values), KeysValues(cross_keys, cross_values), source_padding)
        embedded = self.decoder.embedding.at(tokens, own_keys.size(3) - 1)
        output, _, _ = self.decoder.run_layers(embedded, encoder_output=None, cache=cache)
        scores = self.decoder.output_layer(output.transpose(0, 1))
        log_probs = self.decoder.get_normalized_probs((scores, None), log_probs=True, sample=None)
        return log_probs[:, 0], *cache.own()


@dataclass(frozen=True)
class StateShape:
    """Sizes of a decoder's keys and values: L layers, and heads of a width in each."""

    layers: int
    heads: int
    head_dim: int

    @classmethod
    def of(cls, model: StackModel) -> StateShape:
        attention: Any = model.decoder.layers[0].self_attention
        return cls(len(model.decoder.layers), attention.heads, attention.head_dim)

    def zeros(self, rows: int, length: int, dtype: torch.dtype) -> Tensor:
        """L x N x heads x length x head_dim."""
        return torch.zeros(self.layers, rows, self.heads, length, self.head_dim, dtype=dtype)


@dataclass(frozen=True)
class Programs:
    """What a model was exported to."""

    encoder: ExportedProgram
    decoder_step: ExportedProgram


def refuse_architecture(path: str, architecture: str) -> None:
    """Raise :class:`UserError` where models of an architecture cannot be exported, with the reason."""
    family = ARCH_MODEL_REGISTRY[architecture]
    if issubclass(family, LinearizedTransformer):
        raise UserError(
            f"{path} has linear layers in the places of layers and is for analysis only; export the model that it was "
            "made of"
        )
    if not issubclass(family, StackModel):
        raise UserError(
            f"{path} holds fairseq's own architecture {architecture}, whose decoder keeps its state in dictionaries "
            "and looks at values to decide what to compute, which no trace can follow; models of this plugin can be "
            "exported"
        )


@torch.no_grad()
def export_programs(model: StackModel, path: str) -> Programs:
    """Trace a model on the CPU and compare the result with it.

    Args:
        model: in evaluation mode.
        path: its checkpoint, for messages.

    Raises:
        UserError: torch cannot export the model, or what it made gives other probabilities.
    """
    for module in model.modules():
        if isinstance(module, DepthwiseLSTMCell):
            module.kernel = "eager"  # the equations themselves; whoever runs the program may compile it
    dtype = model.encoder.embedding.tokens.weight.dtype
    shape = StateShape.of(model)
    longest_source, longest_target = model.encoder.max_positions(), model.decoder.max_positions()
    batch, rows = Dim("batch", min=1, max=_MOST_ROWS), Dim("rows", min=1, max=_MOST_ROWS)
    source, past = Dim("source", min=1, max=longest_source), Dim("past", min=1, max=longest_target)
    # Sizes of which none equals another, nor 1, which torch takes for constants.
    tokens = torch.full((2, min(5, longest_source)), model.encoder.dictionary.eos())
    encoder_arguments = (tokens,)
    before, cross = shape.zeros(3, min(4, longest_target), dtype), shape.zeros(3, tokens.size(1), dtype)
    padding = torch.zeros(3, tokens.size(1), dtype=torch.bool)
    step_arguments = (tokens.new_zeros(3), before, before.clone(), cross, cross.clone(), padding)
    own_sizes, cross_sizes = {1: rows, 3: past}, {1: rows, 3: source}
    step_sizes = ({0: rows}, own_sizes, own_sizes, cross_sizes, cross_sizes, {0: rows, 1: source})
    programs = Programs(
        _traced(EncoderProgram(model), encoder_arguments, ({0: batch, 1: source},), path, "encoder"),
        _traced(DecoderStepProgram(model), step_arguments, step_sizes, path, "decoder"),
    )
    _require_equal(programs, model, path)
    return programs


def _traced(
    module: nn.Module, arguments: tuple[Tensor, ...], sizes: tuple[dict[int, Any], ...], path: str, side: str
) -> ExportedProgram:
    module.eval()
    try:
        # Not strict: Python runs as it is, and only what torch computes is recorded.
        program = torch.export.export(module, arguments, dynamic_shapes=sizes, strict=False)
    except Exception as error:  # of many kinds, for which torch has no common one
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UserError(f"the {side} of {path} cannot be exported: {type(error).__name__}: {reason}") from error
    for part in program.graph_module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                for note in _NOTES:
                    node.meta.pop(note, None)
    program._example_inputs = None  # they would be written as a pickle, which whoever loads the program would run
    return program


def _require_equal(programs: Programs, model: StackModel, path: str) -> None:
    """Decode a few tokens with both, for one sentence and for two of different lengths."""
    encode, step = programs.encoder.module(), programs.decoder_step.module()
    pad, eos = model.encoder.dictionary.pad(), model.encoder.dictionary.eos()
    first = min(len(model.encoder.dictionary), len(model.decoder.dictionary)) - 1  # a word, if there is one
    length = min(3, model.encoder.max_positions())
    batches = [[[first] * (length - 1) + [eos]]]
    batches.append([*batches[0], [pad] * (length - 1) + [eos]])
    for batch in batches:
        source = torch.tensor(batch)
        target = torch.tensor([[eos, first, first]] * len(batch))[:, : model.decoder.max_positions()]
        for found, expected in zip(
            _decoded_by_programs(encode, step, source, target, StateShape.of(model)),
            _decoded_by_model(model, source, target),
            strict=True,
        ):
            difference = float((found.exp() - expected.exp()).abs().max())
            if not difference <= _TOLERANCE[model.encoder.embedding.tokens.weight.dtype]:
                raise UserError(
                    f"{path} cannot be exported: probabilities of the exported programs differ from the model's by "
                    f"{difference:.2g}"
                )


def _decoded_by_programs(encode: Any, step: Any, source: Tensor, target: Tensor, shape: StateShape) -> Sequence[Tensor]:
    """Log-probabilities (B x V) after each token of ``target`` (B x T)."""
    *cross, padding = encode(source)
    own = [shape.zeros(len(source), 1, cross[0].dtype)] * 2
    found = []
    for tokens in target.unbind(1):
        log_probs, *own = step(tokens, *own, *cross, padding)
        found.append(log_probs)
    return found


def _decoded_by_model(model: StackModel, source: Tensor, target: Tensor) -> Sequence[Tensor]:
    """The same as the model has them in a beam search."""
    encoded, state = model.encoder(source), dict[str, Any]()
    found = []
    for length in range(1, target.size(1) + 1):
        output = model.decoder(target[:, :length], encoded, incremental_state=state)
        found.append(model.get_normalized_probs(output, log_probs=True)[:, -1])
    return found
