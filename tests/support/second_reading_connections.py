"""A second reading of the connections over depth, position by position, from their parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from second_reading import read_linear, read_norm
from torch import Tensor, nn

#: V_1 (T x C), its weight, and that of the layer's own values.
Blend = tuple[Tensor, float, float]

#: A layer, and which of its sub-layers.
Unit = tuple[nn.Module, str]


class Connected(NamedTuple):
    """A stack: its connection, its layers or sub-layers, the size of its blocks, and what a layer makes of T x C."""

    connection: nn.Module
    layers: list[Unit]
    p: int
    read_layer: Callable[[Unit, Tensor, Blend | None], Tensor]

    def run(self, number: int, x: Tensor, blend: Blend | None = None) -> Tensor:
        return self.read_layer(self.layers[number], x, blend)


def read_residual(stack: Connected, x: Tensor) -> Tensor:
    for number in range(len(stack.layers)):
        x = stack.run(number, x)
    return x


def read_average(stack: Connected, x: Tensor) -> Tensor:
    """DenseFormer: X_i = layer i of Y_{i-1}, and Y_i the sum over j of a_ij X_j."""
    inputs = [x]
    for number in range(len(stack.layers)):
        inputs.append(stack.run(number, x))
        weights = stack.connection.rows[number].tolist()
        assert len(weights) == len(inputs)
        x = torch.stack([w * y for w, y in zip(weights, inputs, strict=True)]).sum(0)
    return x


def read_attention_residuals(stack: Connected, x: Tensor) -> Tensor:
    """Attention Residuals; with p > 1 over the sums of blocks, and the sum so far of the block that a layer is in."""
    p = max(stack.p, 1)
    added: list[Tensor] = []

    def sources(reader: int) -> list[Tensor]:
        found = [x]
        for start in range(0, reader, p):
            found.append(torch.stack(added[start : min(start + p, reader)]).sum(0))
        return found

    def read(reader: int) -> Tensor:
        if reader == 0:
            return x
        query = stack.connection.rows[reader - 1]
        result = torch.zeros_like(x)
        for t in range(len(x)):
            scores = []
            for source in sources(reader):
                s = source[t]
                normalized = s / math.sqrt(float((s * s).mean()) + torch.finfo(s.dtype).eps)
                scores.append(float(query @ normalized))
            exponents = [math.exp(score) for score in scores]
            for share, source in zip(exponents, sources(reader), strict=True):
                result[t] += share / sum(exponents) * source[t]
        return result

    for number in range(len(stack.layers)):
        h = read(number)
        added.append(stack.run(number, h) - h)
    return read(len(stack.layers))


def read_hyper(stack: Connected, x: Tensor) -> Tensor:
    """Hyper-connections, and mHC where there is a bias for the logits."""
    n = stack.connection.streams
    streams = [[x[t].clone() for _ in range(n)] for t in range(len(x))]
    for number in range(len(stack.layers)):
        mixing = stack.connection.mixings[number]
        weights = _manifold if hasattr(mixing, "bias") else _plain
        matrices = [weights(mixing, streams[t], n) for t in range(len(x))]
        h = torch.stack(
            [torch.stack([pre[i] * streams[t][i] for i in range(n)]).sum(0) for t, (pre, _, _) in enumerate(matrices)]
        )
        added = stack.run(number, h) - h
        for t, (_, post, residual) in enumerate(matrices):
            old = streams[t]
            streams[t] = [
                torch.stack([residual[i][j] * old[j] for j in range(n)]).sum(0) + post[i] * added[t] for i in range(n)
            ]
    return torch.stack([torch.stack(own).sum(0) / n for own in streams])


def _plain(mixing: nn.Module, own: list[Tensor], n: int) -> tuple[list[float], list[float], list[list[float]]]:
    """Equations 11 to 13 of hyper-connections: each stream says how it is read, written, and spread over all."""
    rows = []
    for i in range(n):
        mean, variance = own[i].mean(), own[i].var(unbiased=False)
        normalized = (own[i] - mean) / torch.sqrt(variance + 1e-5) * mixing.norm.weight + mixing.norm.bias
        dynamic = [math.tanh(float(mixing.weight[c] @ normalized)) for c in range(n + 2)]
        scales = [float(mixing.scales[1 if c == 1 else 0]) for c in range(n + 2)]
        rows.append([float(mixing.static[i][c]) + scales[c] * dynamic[c] for c in range(n + 2)])
    spread = [[rows[j][2 + i] for j in range(n)] for i in range(n)]  # from stream j to stream i
    return [row[0] for row in rows], [row[1] for row in rows], spread


def _manifold(mixing: nn.Module, own: list[Tensor], n: int) -> tuple[list[float], list[float], list[list[float]]]:
    """mHC: logits from all streams at once, sigmoids, and twenty rounds of rows and columns that sum to 1.

    By the number of logits it is mHC-lite, with one for each permutation, or the matrix is the identity, with none.
    """
    flat = torch.cat(own)
    normalized = flat / torch.sqrt((flat * flat).mean() + torch.finfo(flat.dtype).eps)
    logits = mixing.weight @ normalized
    scales = mixing.scales.tolist()
    bias = mixing.bias
    pre = [1 / (1 + math.exp(-float(scales[0] * logits[i] + bias[i]))) for i in range(n)]
    post = [2 / (1 + math.exp(-float(scales[1] * logits[n + i] + bias[n + i]))) for i in range(n)]
    if len(bias) == 2 * n:
        return pre, post, [[float(i == j) for j in range(n)] for i in range(n)]
    if len(bias) == 2 * n + math.factorial(n):
        exponents = [
            math.exp(float(scales[2] * one + b)) for one, b in zip(logits[2 * n :], bias[2 * n :], strict=True)
        ]
        weighed = list(zip(itertools.permutations(range(n)), exponents, strict=True))
        return pre, post, [
            [sum(e for order, e in weighed if order[i] == j) / sum(exponents) for j in range(n)] for i in range(n)
        ]  # fmt: skip
    matrix = [
        [math.exp(float(scales[2] * logits[2 * n + i * n + j] + bias[2 * n + i * n + j])) for j in range(n)]
        for i in range(n)
    ]
    for _ in range(20):
        matrix = [[value / sum(row) for value in row] for row in matrix]
        columns = [sum(row[j] for row in matrix) for j in range(n)]
        matrix = [[row[j] / columns[j] for j in range(n)] for row in matrix]
    return pre, post, matrix


def read_value_residual(stack: Connected, x: Tensor) -> Tensor:
    """ResFormer: from the second layer on, two scalars mix the first layer's values with the layer's own."""
    layer, _ = stack.layers[0]
    first = read_linear(layer.self_attention.value_projection, read_norm(layer.self_attention_norm, x))
    for number in range(len(stack.layers)):
        weights = stack.connection.rows[number - 1].tolist() if number else None
        x = stack.run(number, x, None if weights is None else (first, weights[0], weights[1]))
    return x


READINGS: dict[str, Callable[..., Tensor]] = {
    "residual": read_residual,
    "average": read_average,
    "attention": read_attention_residuals,
    "hyper": read_hyper,
    "value-residual": read_value_residual,
}
