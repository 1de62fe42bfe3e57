"""Records the outputs of the units of a multi-unit encoder with hooks, while the model runs as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.analysis.units.diversity import LayerDiversity, LayerDiversitySums, UnitOutputs
from fairseq_depthwise.models.base.encoder import StackEncoder


@dataclass(frozen=True)
class MeasuredDiversity:
    """The diversity of units over a data set.

    Attributes:
        layers: of each layer, first to last.
        sentences: number of sentences read.
        tokens: number of source tokens, ends of sentences included.
    """

    layers: tuple[LayerDiversity, ...]
    sentences: int
    tokens: int


@contextmanager
def recorded(layers: Iterable[nn.Module], observe: Callable[[int, UnitOutputs], None]) -> Iterator[None]:
    """Call ``observe`` with the number of each layer that runs, from 0, and the outputs of its units.

    Args:
        layers: :class:`~fairseq_depthwise.models.mute.layers.MultiUnitEncoderLayer`.
        observe: called once for each layer and forward pass.
    """
    hooks: list[Any] = []
    try:
        for number, layer in enumerate(layers):
            hooks += _attach(number, layer, observe)
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _attach(number: int, layer: Any, observe: Callable[[int, UnitOutputs], None]) -> list[Any]:
    attended: list[tuple[Tensor, Tensor]] = []

    def ask_for_weights(module: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return inputs, {**options, "need_weights": True}

    def save_attention(module: nn.Module, inputs: Any, outputs: tuple[Tensor, Tensor]) -> None:
        attended[:] = [outputs]

    def pass_on(module: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        attention_outputs, weights = attended.pop()
        # The input of the feed-forward net is s_i, before its norm.
        observe(number, UnitOutputs(weights.mean(dim=1), attention_outputs, outputs, inputs[0] + outputs))

    return [
        layer.self_attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True),
        layer.self_attention.register_forward_hook(save_attention),
        layer.feed_forward.register_forward_hook(pass_on),
    ]


def measure_diversity(
    encoder: StackEncoder, batches: Iterable[dict[str, Any]], *, include_self: bool = False
) -> MeasuredDiversity:
    """Run an encoder over batches and return the diversity of its units, whatever the size of the batches.

    Args:
        encoder: of a multi-unit model in evaluation mode.
        batches: as fairseq makes them, with ``net_input.src_tokens`` B x T.
        include_self: as in :class:`~fairseq_depthwise.analysis.units.diversity.LayerDiversitySums`.
    """
    sums = [LayerDiversitySums(include_self=include_self) for _ in encoder.layers]
    sentences = tokens = 0
    padding = torch.empty(0)

    def observe(number: int, outputs: UnitOutputs) -> None:
        sums[number].add(outputs, padding)

    with torch.no_grad(), recorded(encoder.layers, observe):
        for batch in batches:
            source = batch["net_input"]["src_tokens"]
            padding = source.eq(encoder.dictionary.pad())
            encoder(source, src_lengths=batch["net_input"].get("src_lengths"))
            sentences += len(source)
            tokens += int(padding.logical_not().sum())
    return MeasuredDiversity(tuple(layer.value() for layer in sums), sentences, tokens)


def attention_maps(encoder: StackEncoder, tokens: Tensor, layer: int) -> Tensor:
    """Return the attention weights of each unit for one sentence, U x T x T, mean over its heads (Figure 5).

    Args:
        encoder: of a multi-unit model in evaluation mode.
        tokens: 1 x T.
        layer: counted from 0.
    """
    maps: list[Tensor] = []

    def observe(number: int, outputs: UnitOutputs) -> None:
        maps.append(outputs.attention_weights[:, 0])

    with torch.no_grad(), recorded([encoder.layers[layer]], observe):
        encoder(tokens)
    return maps[0]
