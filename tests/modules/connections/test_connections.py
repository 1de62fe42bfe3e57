"""Connections over depth: what they are at first, their gradients. Equations: tests/models; growth: tests/growth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.modules.connections import CONNECTIONS
from fairseq_depthwise.modules.connections.sources import source_names
from fairseq_depthwise.modules.stack import Connection, StackShape

WIDTH, LAYERS = 4, 5

#: Those that are the plain pre-norm Transformer at first, by their papers.
PLAIN_AT_FIRST = ("average", "hyper", "hyper on a manifold")


def connection_of(form: str, layers: int = LAYERS) -> Connection:
    shape = StackShape(WIDTH, layers, streams=3, manifold=form.endswith("manifold"))
    return CONNECTIONS[form.partition(" ")[0]](shape).double()


def run(connection: Connection, layers: list[nn.Module], embedded: Tensor) -> Tensor:
    state = connection.initial_state(embedded)
    for index, layer in enumerate(layers):
        read = connection.layer_input(state, index)
        state = connection.update(state, index, read + layer(read))
    return connection.output(state)


def branches() -> list[nn.Module]:
    torch.manual_seed(3)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(LAYERS)]


@pytest.mark.parametrize("form", PLAIN_AT_FIRST)
def test_it_starts_as_the_pre_norm_transformer(form: str) -> None:
    layers, embedded = branches(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    plain = connection_of("residual")
    torch.testing.assert_close(
        run(connection_of(form), layers, embedded), run(plain, layers, embedded), rtol=1e-6, atol=1e-6
    )


def test_attention_starts_as_the_mean_of_all() -> None:
    layers, embedded = branches(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    added, read = [], embedded
    for layer in layers:
        added.append(layer(read))
        read = torch.stack([embedded, *added]).mean(dim=0)
    found = run(connection_of("attention"), layers, embedded)
    torch.testing.assert_close(found, connection_of("residual").final_norm(read))


def sources_of(form: str, embedded: Tensor, read: list[Tensor], outputs: list[Tensor], norms: Any) -> list[Tensor]:
    """What the weights of the next reader weigh, of a stack with blocks of two layers where there are blocks."""
    added = [above - below for above, below in zip(outputs, read, strict=True)]
    if form == "blocks":
        return [embedded, *(norm(output) for norm, output in zip(norms, outputs[1::2], strict=False))]
    if form == "attention by 2":
        return [embedded, *(sum(added[start : start + 2][1:], added[start]) for start in range(0, len(added), 2))]
    return [embedded, *(outputs if form == "average" else added)]


@pytest.mark.parametrize(
    "form", ["average", "attention", "attention by 2", "hyper", "hyper on a manifold", "blocks", "residual"]
)
def test_what_is_read_is_the_weighted_sum_of_the_sources(form: str) -> None:
    shape = StackShape(WIDTH, 4, block_size=2 * (form[-1] in "2s"), streams=3, manifold=form.endswith("manifold"))
    torch.manual_seed(8)
    connection = CONNECTIONS[form.partition(" ")[0]](shape).double()
    for parameter in connection.parameters():
        nn.init.normal_(parameter, std=0.7)
    embedded = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    states, read, outputs, chosen = [connection.initial_state(embedded)], [], [], []
    for index, layer in enumerate([*branches()[:4], None]):
        weights = connection.source_weights(states)
        chosen.append(len(weights))
        found = connection.layer_input(states[-1], index) if layer else connection.output(states[-1])
        if weights:
            sources = sources_of(form, embedded, read, outputs, getattr(connection, "norms", ()))
            assert list(weights) == source_names(len(sources), "block" if form[-1] in "2s" else "layer")
            pairs = zip(weights.values(), sources, strict=True)
            expected = sum(weight.expand(2, 3).unsqueeze(-1) * source for weight, source in pairs)
            torch.testing.assert_close(found, expected if layer else connection.final_norm(expected))
        if layer is not None:
            read.append(found)
            outputs.append(found + layer(found))
            states.append(connection.update(states[-1], index, outputs[-1]))
    assert chosen == {"residual": [0] * 5, "blocks": [1, 0, 2, 0, 3], "attention by 2": [0, 2, 2, 3, 3]}.get(
        form, [1 if form.startswith("hyper") else 0, 2, 3, 4, 5]
    )


def test_weights_of_value_residuals() -> None:
    connection = CONNECTIONS["value-residual"](StackShape(WIDTH, 3))
    connection.requires_grad_(False)
    connection.rows[1].copy_(torch.tensor([0.25, -2.0]))  # type: ignore[index,operator]  # any module's attribute, to mypy
    states = [connection.initial_state(torch.randn(2, 3, WIDTH))] * 4
    found = [
        {name: float(weight) for name, weight in connection.source_weights(states[:count]).items()}
        for count in (1, 2, 3, 4)
    ]
    names = ("values of layer 1", "its own values")
    assert found == [{}, dict.fromkeys(names, 0.5), dict(zip(names, (0.25, -2.0), strict=True)), {}]
