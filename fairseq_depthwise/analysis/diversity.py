"""Diversity of the units of a layer, measured on outputs that hooks record while the model runs.

Source: "Multi-Unit Transformers for Neural Machine Translation", Section 5.6, Equation 21 and Table 6. The paper
defines ``exp(-cos(o_i, o_j))`` for two vectors; it is averaged over units and tokens as in the authors' program::

    DIV = exp( - 1/N sum_n 1/|P| sum_{(i,j) in P} cos(o_i^n, o_j^n) )

with N the number of non-padding tokens, and P the pairs of units with i != j. DIV is 0.368 for equal units, 1 for
orthogonal units, and up to 2.718 for opposite units.

The authors' program (``include_self``) differs in two points. Its P are all I^2 pairs, including those of a unit with
itself: with c the mean cosine of different units that is ``exp(-(1 + (I - 1) c) / I)``, which is lower wherever c < 1.
And its output of a feed-forward net includes the residual, s_i + FFN_i, a large part of which all units share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_depthwise.analysis.analysis import RunningMoments, StackBatch

#: Outputs whose diversity is measured: attention weights ("Att Pos."), self-attention outputs ("Att Sub."), and
#: feed-forward outputs ("FFN Sub.").
OUTPUTS = ("attention_positions", "attention_outputs", "feed_forward_outputs")


def compute_mean_cosines(outputs: Tensor, *, include_self: bool = False) -> Tensor:
    """Return the mean cosine of the pairs of units for each token, N in float64, of vectors U x N x C.

    A vector of length 0 has the cosine 0 with all others.
    """
    units = len(outputs)
    directions = torch.nn.functional.normalize(outputs.double(), dim=-1)  # U x N x C
    # Over all pairs, the cosines sum up to the squared length of the directions' sum.
    sums = directions.sum(dim=0).square().sum(dim=-1)  # N
    if include_self:
        return sums / units**2
    with_themselves = directions.square().sum(dim=(0, -1))
    return (sums - with_themselves) / (units * (units - 1))


@contextmanager
def observe_layers(
    layers: Iterable[Any], observe: Callable[[int, Tensor, Tensor, Tensor, Tensor], None]
) -> Iterator[None]:
    """Within the context, call ``observe`` for each multi-unit layer that runs.

    Its arguments are:

    - the number of the layer, from 0
    - the attention weights from each position (first T) to all, mean over a unit's heads, U x B x T x T
    - SelfAttn_i of Equation 8, U x T x B x d
    - FFN_i of Equation 9 without the residual, U x T x B x d
    - s_i, U x T x B x d

    U, the number of units, is 1 where they share the module.
    """
    # Attention outputs and weights of the layer that is running.
    attention_results: list[tuple[Tensor, Tensor]] = []

    def ask_for_weights(module: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return inputs, {**options, "need_weights": True}

    def save_attention(module: nn.Module, inputs: Any, outputs: tuple[Tensor, Tensor]) -> None:
        attention_results.append(outputs)

    def report_layer(number: int, module: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        attention_outputs, weights = attention_results.pop()
        residual = inputs[0]  # the input of the feed-forward net is s_i, before its norm
        observe(number, weights.mean(dim=1), attention_outputs, outputs, residual)

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
    """Run batches and return the diversities of :data:`OUTPUTS` of each layer; batch sizes make no difference.

    The diversity of an output that the units share is None.
    """
    cosines: list[list[RunningMoments]] = []
    for _ in layers:
        cosines.append([RunningMoments() for _ in OUTPUTS])
    is_token = torch.empty(0)  # B x T

    def observe(
        number: int, weights: Tensor, attention_outputs: Tensor, feed_forward_outputs: Tensor, residual: Tensor
    ) -> None:
        if include_self:  # as in the authors' program
            feed_forward_outputs = residual + feed_forward_outputs
        # In the order of OUTPUTS, U x N x T or d each.
        vectors = (weights[:, is_token], attention_outputs[:, is_token.t()], feed_forward_outputs[:, is_token.t()])
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

    def observe(number: int, weights: Tensor, *outputs: Tensor) -> None:
        maps.append(weights[:, 0])

    with observe_layers([encoder.layers[layer]], observe):
        encoder(tokens)  # calls observe
    return maps[0]
