"""Diversity of the units of a layer, measured on outputs that hooks record while the model runs.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 5.6, Equation 21 and Table 6. The paper
defines ``exp(-cos(o_i, o_j))`` for one pair of vectors. Here, as in the authors' program, the cosines are averaged over
pairs and tokens first, and the exponential is taken of the mean::

    DIV = exp( - 1/N sum_n 1/|P| sum_{(i,j) in P} cos(o_i^n, o_j^n) )

with N the number of non-padding tokens, U the number of units, and P the pairs of units with i != j. DIV is 0.368 for
equal units, 1 for orthogonal units, and up to 2.718 for opposite units.

``include_self`` computes what the authors' program does instead. It differs in two ways: (1) P has all U^2 pairs, also
each unit with itself, which gives ``exp(-(1 + (U - 1) c) / U)`` for a mean cosine c of different units: less, unless c
is 1. (2) The output of a feed-forward net includes the residual, s_i + FFN_i, most of which is common to all units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_depthwise.analysis.analysis import RunningMoments, StackBatch

#: Outputs whose diversity is measured: attention weights ("Att Pos."), self-attention outputs ("Att Sub."), and
#: feed-forward outputs ("FFN Sub.").
OUTPUTS = ("attention_positions", "attention_outputs", "feed_forward_outputs")


def compute_mean_cosines(outputs: Tensor, *, include_self: bool = False) -> Tensor:
    """Return the mean cosine of the pairs of units for each token, N in float64, of vectors U x N x C.

    A vector of length 0 has the cosine 0 with all others. ``include_self`` counts the pairs of a unit with itself, too.
    """
    units = len(outputs)
    directions = torch.nn.functional.normalize(outputs.double(), dim=-1)  # U x N x C
    # For unit vectors |sum_i v_i|^2 = sum_ij v_i v_j, the sum of the cosines of all ordered pairs.
    all_pairs = directions.sum(dim=0).square().sum(dim=-1)  # N
    if include_self:
        return all_pairs / units**2
    # A unit's cosine with itself is 1, or 0 for a vector of length 0.
    with_themselves = directions.square().sum(dim=(0, -1))  # N
    return (all_pairs - with_themselves) / (units * (units - 1))


class LayerOutputs(NamedTuple):
    """What a multi-unit layer computed. U, the number of units, is 1 for a module that all units share.

    Attributes:
        weights: attention weights from each position (first T) to all, mean over a unit's heads, U x B x T x T.
        attention_outputs: SelfAttn_i of Equation 8, U x T x B x d.
        feed_forward_outputs: FFN_i of Equation 9, without the residual, U x T x B x d.
        residual: s_i, U x T x B x d.
    """

    weights: Tensor
    attention_outputs: Tensor
    feed_forward_outputs: Tensor
    residual: Tensor


@contextmanager
def observe_layers(layers: Iterable[Any], observe: Callable[[int, LayerOutputs], None]) -> Iterator[None]:
    """Within the context, call ``observe`` for each multi-unit layer that runs, with its number, from 0."""
    # Attention outputs and weights of the layer that is running: its attention adds them, and its feed-forward net,
    # which runs next, takes them out.
    attention_results: list[tuple[Tensor, Tensor]] = []

    def ask_for_weights(module: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return inputs, {**options, "need_weights": True}

    def save_attention(module: nn.Module, inputs: Any, outputs: tuple[Tensor, Tensor]) -> None:
        attention_results.append(outputs)

    def report_layer(number: int, module: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        attention_outputs, weights = attention_results.pop()
        residual = inputs[0]  # the input of the feed-forward net is s_i, before its norm
        # The weights are U x heads x B x T x T.
        observe(number, LayerOutputs(weights.mean(dim=1), attention_outputs, outputs, residual))

    with ExitStack() as hooks:
        for number, layer in enumerate(layers):
            attention, feed_forward = layer.self_attention, layer.feed_forward
            hooks.callback(attention.register_forward_pre_hook(ask_for_weights, with_kwargs=True).remove)
            hooks.callback(attention.register_forward_hook(save_attention).remove)
            hooks.callback(feed_forward.register_forward_hook(partial(report_layer, number)).remove)
        yield


def measure_diversity(
    layers: Sequence[nn.Module], batches: Iterable[StackBatch], *, include_self: bool = False
) -> list[list[float | None]]:
    """Run batches and return the diversities of :data:`OUTPUTS` of each layer, whatever the batch size.

    The diversity of an output that the units share is None. ``include_self`` measures as the authors' program does.
    """
    cosines: list[list[RunningMoments]] = []
    for _ in layers:
        cosines.append([RunningMoments() for _ in OUTPUTS])
    # B x T, of the batch that is running; observe() reads it.
    is_token = torch.empty(0)

    def observe(number: int, layer: LayerOutputs) -> None:
        feed_forward_outputs = layer.feed_forward_outputs
        if include_self:
            feed_forward_outputs = layer.residual + feed_forward_outputs
        # In the order of OUTPUTS: U x N x T for the weights, U x N x d for the others.
        vectors = (
            layer.weights[:, is_token],
            layer.attention_outputs[:, is_token.t()],
            feed_forward_outputs[:, is_token.t()],
        )
        for moments, outputs in zip(cosines[number], vectors, strict=True):
            # Units that share a module have one output, and no diversity.
            if len(outputs) > 1:
                moments.add(compute_mean_cosines(outputs, include_self=include_self))

    with observe_layers(layers, observe):
        for batch in batches:
            is_token = batch.padding["encoder"].logical_not()
            batch.run()  # calls observe for each layer
    return [list(map(_compute_diversity, layer_cosines)) for layer_cosines in cosines]


def _compute_diversity(cosines: RunningMoments) -> float | None:
    return math.exp(-cosines.mean) if cosines.count else None


@torch.no_grad()
def compute_attention_maps(encoder: Any, tokens: Tensor, layer: int) -> Tensor:
    """Return the attention weights of each unit of a layer (from 0) for one sentence (1 x T), U x T x T (Figure 5)."""
    maps: list[Tensor] = []

    def observe(number: int, outputs: LayerOutputs) -> None:
        maps.append(outputs.weights[:, 0])

    with observe_layers([encoder.layers[layer]], observe):
        encoder(tokens)  # calls observe
    return maps[0]
