"""A second reading of the paper: whole models from their parameters, with functional forms and loops.

Nothing here calls the package's own computation, so that a mistake there cannot hide; what a model's options say is
given anew, in the names of the command line. One sentence at a time, without padding, without dropout.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 1


def read_norm(norm: nn.LayerNorm, x: Tensor, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, (x.size(-1),), norm.weight, norm.bias, eps)


def read_linear(linear: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, linear.weight, linear.bias)


def read_embedding(table: Tensor, tokens: Tensor) -> Tensor:
    """``sqrt(d) E + sinusoids`` (T x d); the first token has position 2, as fairseq counts."""
    width = table.size(1)
    half = width // 2
    rows = []
    for t, token in enumerate(tokens.tolist()):
        angles = [(PAD + 1 + t) / 10000 ** (k / (half - 1)) for k in range(half)]
        positions = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        rows.append(math.sqrt(width) * table[token] + torch.tensor(positions, dtype=table.dtype))
    return torch.stack(rows)


# --- the cell --------------------------------------------------------------------------------------------------------


def read_activation(name: str, x: Tensor) -> Tensor:
    if name == "glu":
        left, right = x.chunk(2, -1)
        return left * right.sigmoid()
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2))) if name == "gelu" else x.clamp(min=0)


def read_hidden(net: nn.Module, joined: Tensor, options: dict[str, Any]) -> Tensor:
    """Eq 5 or Eq 6."""
    activation = options.get("depthwise_hidden_activation", "glu")
    wide = read_norm(net.norm, F.linear(joined, net.first.weight), 1e-6)
    if options.get("depthwise_hidden_layers", 2) == 1:
        return read_activation("gelu" if activation == "glu" else activation, wide)
    return F.linear(read_activation(activation, wide), net.second.weight)


def read_cell(
    cell: nn.Module, attended: Tensor, output: Tensor, past: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Eqs 1-8 gate by gate, with slices of the stored parameters; the RNN of Table 2 has Eqs 1 and 6 only."""
    joined = torch.cat((output, attended), -1)
    hidden = read_hidden(cell.hidden_net, joined, options)
    if options.get("depthwise_cell") == "rnn":
        return hidden, past

    if options.get("depthwise_attention_skip"):
        for start in range(0, attended.size(-1), output.size(-1)):
            hidden = hidden + attended[..., start : start + output.size(-1)]
    joint = options.get("depthwise_gate_norm") == "joint"
    i, f, o = (read_gate(cell, index, joined, joint=joint) for index in range(3))
    new = past * f + hidden * i
    return new * o, new


def read_gate(cell: nn.Module, index: int, joined: Tensor, *, joint: bool = False) -> Tensor:
    width = cell.gates.norm_weight.size(1)
    if joint:
        logits = F.linear(joined, cell.gates.projection.weight)
        mean, variance = logits.mean(-1, keepdim=True), logits.var(-1, unbiased=False, keepdim=True)
        own = (logits[..., index * width : (index + 1) * width] - mean) / (variance + 1e-6).sqrt()
        return torch.sigmoid(own * cell.gates.norm_weight[index] + cell.gates.norm_bias[index])
    rows = cell.gates.projection.weight[index * width : (index + 1) * width]
    weight, bias = cell.gates.norm_weight[index], cell.gates.norm_bias[index]
    return torch.sigmoid(F.layer_norm(F.linear(joined, rows), (width,), weight, bias, 1e-6))


# --- attention -------------------------------------------------------------------------------------------------------


def read_attention(
    attention: nn.Module, query: Tensor, source: Tensor, hidden: Tensor, max_distance: int = 0, on_values: bool = False,
    values: Tensor | None = None,
) -> Tensor:  # fmt: skip
    return read_attention_and_weights(attention, query, source, hidden, max_distance, on_values, values)[0]


def read_attention_and_weights(
    attention: nn.Module, query: Tensor, source: Tensor, hidden: Tensor, max_distance: int = 0, on_values: bool = False,
    given: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``hidden`` (T x S, True where not to look) for one sentence: query T x C, source S x C; weights heads x T x S.

    With ``max_distance``, Shaw et al.'s Eqs 3 and 4 pair by pair. ``given``: values in place of its own, S x C.
    """
    heads, width = attention.heads, query.size(-1)

    def split(layer: nn.Linear, x: Tensor) -> Tensor:
        return read_linear(layer, x).view(x.size(0), heads, width // heads).transpose(0, 1)

    queries, keys = split(attention.query_projection, query), split(attention.key_projection, source)
    values = split(attention.value_projection, source)
    if given is not None:
        values = given.view(source.size(0), heads, width // heads).transpose(0, 1)
    scores = queries @ keys.transpose(1, 2)
    tables = attention.relative_positions
    row = {
        (i, j): max(-max_distance, min(max_distance, j - i)) + max_distance
        for i in range(query.size(0))
        for j in range(source.size(0))
    }
    if max_distance:
        scores = scores.clone()
        for (i, j), index in row.items():
            scores[:, i, j] += queries[:, i] @ tables.key_table[index]
    weights = (scores / (width // heads) ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    joined = weights @ values
    if max_distance and on_values:
        for (i, j), index in row.items():
            joined[:, i] += weights[:, i, j, None] * tables.value_table[index]
    return read_linear(attention.output_projection, joined.transpose(0, 1).reshape(-1, width)), weights


# --- the whole model -------------------------------------------------------------------------------------------------


def read_features(model: nn.Module, source: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    """The decoder's output (T x C) of one sentence: Sections 2.2 and 2.3 layer by layer."""
    encoder, decoder = model.encoder, model.decoder
    relative = (options.get("max_relative_positions", 0), options.get("relative_position_terms") == "key-value")

    output = cell = read_embedding(encoder.embedding.tokens.weight, source)
    nothing = torch.zeros(len(source), len(source), dtype=torch.bool)
    for number, layer in enumerate(encoder.layers, start=1):
        x = output if number == 1 else read_norm(layer.input_norm, output)
        attended = read_attention(layer.self_attention, x, x, nothing, *relative)
        output, cell = read_cell(layer.cell, attended, output, cell, options)
    encoded = read_norm(encoder.connection.final_norm, output)

    merge = options.get("decoder_merge", "add")
    output = cell = read_embedding(decoder.embedding.tokens.weight, target)
    future = torch.ones(len(target), len(target), dtype=torch.bool).triu(1)
    nothing = torch.zeros(len(target), len(source), dtype=torch.bool)
    for number, layer in enumerate(decoder.layers, start=1):
        x = output if number == 1 else read_norm(layer.input_norm, output)
        s = read_attention(layer.self_attention, x, x, future, *relative)
        if merge == "two-cells":  # Figure 3 (b)
            output, cell = read_cell(layer.middle_cell, s, output, cell, options)
        query = output if merge == "two-cells" else s + output
        query = query if number == 1 else read_norm(layer.query_norm, query)
        c = read_attention(layer.cross_attention, query, encoded, nothing)
        reaching_the_cell = {"add": s + c, "concat": torch.cat((s, c), -1), "two-cells": c}[merge]
        output, cell = read_cell(layer.cell, reaching_the_cell, output, cell, options)
    return read_norm(decoder.connection.final_norm, output)


def read_log_probabilities(model: nn.Module, features: Tensor) -> Tensor:
    """T x C to T x V."""
    return F.linear(features, model.decoder.output_projection.weight).log_softmax(-1)
