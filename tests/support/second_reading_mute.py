"""A second reading of the multi-unit paper: unit by unit, head by head, position by position, from the parameters.

As in ``second_reading.py``: nothing here calls the package's own computation, and options are given anew, in the names
of the command line. One sentence at a time, without padding, without dropout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from second_reading import read_activation, read_embedding, read_linear, read_norm
from tiny_models import FAMILIES
from torch import Tensor, nn

#: Of a sentence, for each unit and position: the position whose input it reads, None for the mask vector.
Noise = Sequence[Sequence[int | None]]


class Reading(NamedTuple):
    """What parameters do not tell: heads, largest relative distance (0: none), whether on values too, activation."""

    heads: int
    max_distance: int
    on_values: bool
    activation: str
    hard: bool = False


# --- one unit --------------------------------------------------------------------------------------------------------


def of_unit(parameter: Tensor, i: int) -> Tensor:
    """Unit i's part; units that share have one part."""
    return parameter[i if len(parameter) > 1 else 0]


def read_unit_linear(linear: nn.Module, i: int, x: Tensor) -> Tensor:
    return torch.stack([row @ of_unit(linear.weight, i) + of_unit(linear.bias, i) for row in x])


def read_unit_norm(norm: nn.Module, i: int, x: Tensor) -> Tensor:
    return F.layer_norm(x, (x.size(-1),), of_unit(norm.weight, i), of_unit(norm.bias, i), 1e-5)


def read_heads(
    queries: Tensor, keys: Tensor, values: Tensor, table: Tensor | None, given: Reading, causal: bool = False
) -> Tensor:
    """T x d: attention head by head and position by position, with one table r for keys and values (Shaw et al.)::

    e_ij = q_i . (k_j + r_ij) / sqrt(head_dim)      z_i = sum_j softmax_j(e_ij) (v_j + r_ij)
    """
    size = queries.size(1) // given.heads
    outputs = []
    for i, query in enumerate(queries):
        seen = range(i + 1) if causal else range(len(keys))
        parts = []
        for h in range(given.heads):
            part = slice(h * size, (h + 1) * size)
            k, v = keys[list(seen), part], values[list(seen), part]
            if table is not None:
                far = given.max_distance
                r = torch.stack([table[max(-far, min(far, j - i)) + far] for j in seen])
                k, v = k + r, v + r if given.on_values else v
            parts.append((k @ query[part] / math.sqrt(size)).softmax(0) @ v)
        outputs.append(torch.cat(parts))
    return torch.stack(outputs)


def read_unit_attention(attention: nn.Module, i: int, x: Tensor, given: Reading) -> Tensor:
    """``SelfAttn_i(x)``, T x d."""
    queries, keys, values = (
        read_unit_linear(getattr(attention, f"{name}_projection"), i, x) for name in ("query", "key", "value")
    )
    table = of_unit(attention.relative_positions.key_table, i) if given.max_distance else None
    return read_unit_linear(attention.output_projection, i, read_heads(queries, keys, values, table, given))


def read_unit_feed_forward(net: nn.Module, i: int, x: Tensor, activation: str) -> Tensor:
    """``FFN_i(LN_i(x))``, T x d."""
    hidden = read_unit_linear(net.first, i, read_unit_norm(net.norm, i, x))
    return read_unit_linear(net.second, i, read_activation(activation, hidden))


# --- the layer -------------------------------------------------------------------------------------------------------


def read_encoder_layer(layer: nn.Module, x: Tensor, given: Reading, noise: Noise | None = None) -> Tensor:
    """Equations 8 to 16 for a sentence x (T x d)."""
    n = read_norm(layer.self_attention_norm, x)
    outputs = []
    for i in range(len(layer.unit_weights)):
        biased = n
        if noise is not None:
            biased = torch.stack([layer.inputs.mask_vector if t is None else n[t] for t in noise[i]])
        s = x + read_unit_attention(layer.self_attention, i, biased, given)
        outputs.append(s + read_unit_feed_forward(layer.feed_forward, i, s, given.activation))
    if layer.order is None:
        return sum(alpha * output for alpha, output in zip(layer.unit_weights, outputs, strict=True))
    matrix = read_projection(layer.order.raw.tolist())
    return read_sequence(read_permutation(matrix) if given.hard else matrix, layer.unit_weights, outputs)


def read_sequence(matrix: list[list[float]], weights: Tensor, outputs: list[Tensor]) -> Tensor:
    """Equations 14 to 16 as they stand: ``G = M^T F``, ``Ghat_j = Ghat_{j-1} + G_j``, ``sum_j alpha_j Ghat_j / j``."""
    units = range(len(outputs))
    permuted = [sum(matrix[i][j] * outputs[i] for i in units) for j in units]
    accumulated, total = torch.zeros_like(outputs[0]), torch.zeros_like(outputs[0])
    for j in units:
        accumulated = accumulated + permuted[j]
        total = total + weights[j] * accumulated / (j + 1)
    return total


# --- the matrix ------------------------------------------------------------------------------------------------------


def read_projection(raw: list[list[float]], rounds: int = 50) -> list[list[float]]:
    """Equations 17 and 18: negative entries are 0, columns are divided by their sums, then rows; fifty times.

    A thousandth of the entries' mean is added to each.
    """
    units = range(len(raw))
    mean = sum(max(value, 0.0) for row in raw for value in row) / len(raw) ** 2
    matrix = [[max(value, 0.0) + max(mean, 1e-3) / 1000 for value in row] for row in raw]
    for _ in range(rounds):
        for j in units:
            total = sum(matrix[i][j] for i in units)
            for i in units:
                matrix[i][j] /= total
        for i in units:
            total = sum(matrix[i])
            for j in units:
                matrix[i][j] /= total
    return matrix


def read_penalty(matrix: list[list[float]]) -> float:
    """Equation 19."""
    total = 0.0
    for lines in (matrix, list(zip(*matrix, strict=True))):
        for line in lines:
            total += sum(abs(value) for value in line) - math.sqrt(sum(value**2 for value in line))
    return total


def read_permutation(matrix: list[list[float]]) -> list[list[float]]:
    """The nearest of all permutation matrices."""
    units = range(len(matrix))
    candidates = [[[float(places[i] == j) for j in units] for i in units] for places in itertools.permutations(units)]
    return min(candidates, key=lambda one: sum((one[i][j] - matrix[i][j]) ** 2 for i in units for j in units))


# --- the whole model -------------------------------------------------------------------------------------------------


def read_attention(attention: nn.Module, x: Tensor, source: Tensor, given: Reading, causal: bool = False) -> Tensor:
    """Of the decoder, for one sentence: x is T x d, source S x d."""
    projected = (
        read_linear(attention.query_projection, x),
        read_linear(attention.key_projection, source),
        read_linear(attention.value_projection, source),
    )
    table = attention.relative_positions.key_table if causal and given.max_distance else None
    return read_linear(attention.output_projection, read_heads(*projected, table, given, causal))


def read_decoder_layer(layer: nn.Module, x: Tensor, encoded: Tensor, given: Reading) -> Tensor:
    n = read_norm(layer.self_attention_norm, x)
    x = x + read_attention(layer.self_attention, n, n, given, causal=True)
    x = x + read_attention(layer.cross_attention, read_norm(layer.cross_attention_norm, x), encoded, given)
    hidden = read_linear(layer.feed_forward.first, read_norm(layer.feed_forward_norm, x))
    return x + read_linear(layer.feed_forward.second, read_activation(given.activation, hidden))


def read_encoder(model: nn.Module, source: Tensor, options: dict[str, Any]) -> Tensor:
    """The encoder's output (T x d) of one sentence, without noise."""
    encoder = model.encoder
    x = read_embedding(encoder.embedding.tokens.weight, source)
    for layer in encoder.layers:
        x = read_encoder_layer(layer, x, read_options(options))
    return read_norm(encoder.connection.final_norm, x)


def read_features(model: nn.Module, source: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    """The decoder's output (T x d) of one sentence."""
    encoded = read_encoder(model, source, options)
    x = read_embedding(model.decoder.embedding.tokens.weight, target)
    for layer in model.decoder.layers:
        x = read_decoder_layer(layer, x, encoded, read_options(options))
    return read_norm(model.decoder.connection.final_norm, x)


def read_options(options: dict[str, Any]) -> Reading:
    given = FAMILIES["mute_transformer"] | options
    return Reading(
        heads=given["encoder_attention_heads"],
        max_distance=given["max_relative_positions"],
        on_values=given.get("relative_position_terms", "key-value") == "key-value",
        activation=given.get("activation_fn", "relu"),
        hard=given.get("permutation_at_inference") == "hard",
    )
