"""A second reading of the connections over depth, position by position, from their parameters.

``run(number, x)`` gives what layer ``number`` makes of T x C; what it adds is that without x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

RunLayer = Callable[[int, Tensor], Tensor]


def read_residual(_: nn.Module, run: RunLayer, x: Tensor, layers: int, p: int) -> Tensor:
    for number in range(layers):
        x = run(number, x)
    return x


def read_average(connection: nn.Module, run: RunLayer, x: Tensor, layers: int, p: int) -> Tensor:
    """DenseFormer: X_i = layer i of Y_{i-1}, and Y_i the sum over j of a_ij X_j."""
    inputs = [x]
    for number in range(layers):
        inputs.append(run(number, x))
        weights = connection.rows[number].tolist()
        assert len(weights) == len(inputs)
        x = torch.stack([w * y for w, y in zip(weights, inputs, strict=True)]).sum(0)
    return x


def read_attention_residuals(connection: nn.Module, run: RunLayer, x: Tensor, layers: int, p: int) -> Tensor:
    """Attention Residuals; with p > 1 over the sums of blocks, and the sum so far of the block that a layer is in."""
    p = max(p, 1)
    added: list[Tensor] = []

    def sources(reader: int) -> list[Tensor]:
        found = [x]
        for start in range(0, reader, p):
            found.append(torch.stack(added[start : min(start + p, reader)]).sum(0))
        return found

    def read(reader: int) -> Tensor:
        if reader == 0:
            return x
        query = connection.rows[reader - 1]
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

    for number in range(layers):
        h = read(number)
        added.append(run(number, h) - h)
    return read(layers)


def read_hyper(connection: nn.Module, run: RunLayer, x: Tensor, layers: int, p: int) -> Tensor:
    """Hyper-connections, and mHC where there is a bias for the logits."""
    n = connection.streams
    streams = [[x[t].clone() for _ in range(n)] for t in range(len(x))]
    for number in range(layers):
        mixing = connection.mixings[number]
        weights = _manifold if hasattr(mixing, "bias") else _plain
        matrices = [weights(mixing, streams[t], n) for t in range(len(x))]
        h = torch.stack(
            [torch.stack([pre[i] * streams[t][i] for i in range(n)]).sum(0) for t, (pre, _, _) in enumerate(matrices)]
        )
        added = run(number, h) - h
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
    """mHC: logits from all streams at once, sigmoids, and twenty rounds of rows and columns that sum to 1."""
    flat = torch.cat(own)
    normalized = flat / torch.sqrt((flat * flat).mean() + torch.finfo(flat.dtype).eps)
    logits = mixing.weight @ normalized
    scales = mixing.scales.tolist()
    bias = mixing.bias
    pre = [1 / (1 + math.exp(-float(scales[0] * logits[i] + bias[i]))) for i in range(n)]
    post = [2 / (1 + math.exp(-float(scales[1] * logits[n + i] + bias[n + i]))) for i in range(n)]
    matrix = [
        [math.exp(float(scales[2] * logits[2 * n + i * n + j] + bias[2 * n + i * n + j])) for j in range(n)]
        for i in range(n)
    ]
    for _ in range(20):
        matrix = [[value / sum(row) for value in row] for row in matrix]
        columns = [sum(row[j] for row in matrix) for j in range(n)]
        matrix = [[row[j] / columns[j] for j in range(n)] for row in matrix]
    return pre, post, matrix


READINGS: dict[str, Callable[..., Tensor]] = {
    "residual": read_residual,
    "average": read_average,
    "attention": read_attention_residuals,
    "hyper": read_hyper,
}
