"""Connections over depth: what they are at first, their gradients. Equations: tests/models; growth: tests/growth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.analysis.connection_sources import OUTPUT, Source, Trace, WatchedConnection, find_sources
from fairseq_depthwise.models.sdt.model import CONNECTIONS
from fairseq_depthwise.modules.depth_connections.hyper import ManifoldMixing
from fairseq_depthwise.modules.stack import Connection, StackShape

WIDTH, LAYERS = 4, 5

#: Those that are the plain pre-norm Transformer at first, by their papers.
STREAMS = ("hyper", "hyper, sinkhorn", "hyper, permutations", "hyper, identity")
PLAIN_AT_FIRST = ("average", *STREAMS)


def connection_of(form: str, layers: int = LAYERS, block_size: int = 0) -> Connection:
    name, _, manifold = form.partition(", ")
    shape = StackShape(WIDTH, layers, block_size, streams=3, manifold=manifold or "none")
    return CONNECTIONS[name.split()[0]](shape).double()


def run(
    connection: Connection | WatchedConnection, layers: list[nn.Module], embedded: Tensor, apart: int | None = None
) -> Tensor:
    """Run a stack, whose layer ``apart`` passes no gradient to what it reads."""
    state = connection.initial_state(embedded)
    for index, layer in enumerate(layers):
        read = connection.layer_input(state, index)
        read = read.detach() if index == apart else read
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
    result = run(connection_of("attention"), layers, embedded)
    torch.testing.assert_close(result, connection_of("residual").final_norm(read))


def second_reading(form: str, embedded: Tensor, read: list[Tensor], outputs: list[Tensor], norms: Any) -> list[Tensor]:
    """What the weights of the next reader weigh, of a stack with blocks of two layers where there are blocks."""
    added = [above - below for above, below in zip(outputs, read, strict=True)]
    if form == "blocks":
        return [embedded, *(norm(output) for norm, output in zip(norms, outputs[1::2], strict=False))]
    if form == "attention by 2":
        return [embedded, *(sum(added[start : start + 2][1:], added[start]) for start in range(0, len(added), 2))]
    return [embedded, *(outputs if form == "average" else added)]


@pytest.mark.parametrize("form", ["average", "attention", "attention by 2", *STREAMS, "blocks", "residual"])
def test_what_is_read_is_the_weighted_sum_of_the_sources(form: str) -> None:
    torch.manual_seed(8)
    has_blocks = form in ("blocks", "attention by 2")
    connection = connection_of(form, 4, 2 * has_blocks)
    for parameter in connection.parameters():
        nn.init.normal_(parameter, std=0.7)
    embedded = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    states, read, outputs, counts = [connection.initial_state(embedded)], [], [], []
    for index, layer in enumerate([*branches()[:4], None]):
        added = [above - below for above, below in zip(outputs, read, strict=True)]
        sources = find_sources(connection, Trace(states, added))
        counts.append(len(sources))
        result = connection.layer_input(states[-1], index) if layer else connection.output(states[-1])
        if sources:
            values = second_reading(form, embedded, read, outputs, getattr(connection, "norms", ()))
            part = "block" if has_blocks else "layer"
            assert list(sources) == ["embedding", *(f"{part} {number}" for number in range(1, len(values)))]
            expected: Any = 0
            for source, value in zip(sources.values(), values, strict=True):
                torch.testing.assert_close(source.value, value)
                expected = expected + source.weight.expand(2, 3).unsqueeze(-1) * value
            torch.testing.assert_close(result, expected if layer else connection.final_norm(expected))
        if layer is not None:
            read.append(result)
            outputs.append(result + layer(result))
            states.append(connection.update(states[-1], index, outputs[-1]))
    assert counts == {"residual": [0] * 5, "blocks": [1, 0, 2, 0, 3], "attention by 2": [0, 2, 2, 3, 3]}.get(
        form, [1 if form.startswith("hyper") else 0, 2, 3, 4, 5]
    )


@pytest.mark.parametrize(
    "form", ["average", "attention", *(pytest.param(form, marks=pytest.mark.long) for form in STREAMS)]
)
def test_gradients_are_those_of_small_steps(form: str) -> None:
    torch.manual_seed(8)
    connection, layers = connection_of(form), branches()
    parameters = [nn.init.normal_(one, std=0.5) for one in connection.parameters()]
    embedded = torch.randn(1, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *_: run(connection, layers, embedded), (embedded, *parameters))


@pytest.mark.parametrize(("above", "apart"), [(0, None), (2, None), (0, 2)])
def test_gradients_of_averages_are_those_of_their_sums(above: int, apart: int | None) -> None:
    torch.manual_seed(8)
    connection, layers = connection_of("average"), branches()[: LAYERS - above]
    rows = [nn.init.normal_(row) for row in connection.rows]  # type: ignore[union-attr]  # a list, to mypy a module
    embedded = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    sources = [read := embedded]
    for index, (row, layer) in enumerate(zip(rows, layers, strict=False)):
        read = read.detach() if index == apart else read
        sources.append(read + layer(read))
        read = (torch.stack(sources) * row.view(-1, 1, 1, 1)).sum(0)  # a second reading, by PyTorch alone
    learned = [embedded, *rows[: len(layers)]]
    expected = torch.autograd.grad(connection.final_norm(read).sin().sum(), learned, materialize_grads=True)
    found = run(connection, layers, embedded, apart).sin().sum()
    for _ in range(2):  # also again, with what was kept
        torch.testing.assert_close(torch.autograd.grad(found, learned, retain_graph=True), expected)
    with torch.no_grad():
        torch.testing.assert_close(run(connection, layers, embedded).sin().sum(), found.detach())


def test_a_pass_that_ends_above_the_first_average_leaves_no_gradients() -> None:
    connection, layers = connection_of("average"), branches()
    rows = [nn.init.normal_(row) for row in connection.rows]  # type: ignore[union-attr]  # a list, to mypy a module
    for frozen in (*rows, *layers[0].parameters()):
        frozen.requires_grad_(False)
    state, streams = connection.initial_state(torch.randn(2, 3, WIDTH, dtype=torch.float64)), []
    for index, layer in enumerate(layers):
        state = connection.update(state, index, layer(connection.layer_input(state, index)))
        streams.append(state[0])

    def gradients(stream: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(stream.sin().sum(), [*layers[1].parameters()], retain_graph=True)

    expected = gradients(streams[2])
    gradients(streams[-1])
    torch.testing.assert_close(gradients(streams[2]), expected)
    torch.autograd.grad(streams[-1].sin().sum(), [*layers[-1].parameters()], retain_graph=True)  # ends at the top
    torch.testing.assert_close(gradients(streams[2]), expected)


def test_permutations_are_mixed_to_sums_of_one() -> None:
    mixing = ManifoldMixing("permutations", WIDTH, 4, 0).double()
    assert len(mixing.bias) == 4 + 4 + 24
    for parameter in mixing.parameters():
        nn.init.normal_(parameter, std=2)
    _, _, matrix = mixing(torch.randn(2, 3, 4, WIDTH, dtype=torch.float64))
    assert matrix.min() >= 0
    for dim in (-1, -2):
        torch.testing.assert_close(matrix.sum(dim), torch.ones_like(matrix[..., 0]), rtol=1e-14, atol=1e-14)


def test_weights_of_value_residuals() -> None:
    connection = CONNECTIONS["value-residual"](StackShape(WIDTH, 3))
    connection.requires_grad_(False)
    connection.rows[1].copy_(torch.tensor([0.25, -2.0]))  # type: ignore[index,operator]  # any module's attribute, to mypy
    states = [connection.initial_state(torch.randn(2, 3, WIDTH))] * 4
    weights = []
    for count in (1, 2, 3, 4):
        sources = find_sources(connection, Trace(states[:count], []))
        weights.append({name: float(source.weight) for name, source in sources.items()})
    names = ("values of layer 1", "its own values")
    assert weights == [{}, dict.fromkeys(names, 0.5), dict(zip(names, (0.25, -2.0), strict=True)), {}]


@pytest.mark.parametrize("form", ["average", "attention", "blocks", *STREAMS])
@torch.no_grad()
def test_parts_of_sources_sum_up_to_what_is_read(form: str) -> None:
    connection = connection_of(form, block_size=LAYERS if form == "blocks" else 2 * (form == "attention"))
    torch.manual_seed(5)
    for value in connection.parameters():
        value += 0.5 * torch.randn_like(value)
    readers = []

    def see(place: Any, trace: Trace, read: Tensor) -> Tensor:
        sources = find_sources(connection, trace)
        if sources:
            readers.append(place)
            torch.testing.assert_close(sum(map(Source.weighted_value, sources.values())), read)
        return read

    layers, embedded = branches(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    expected = run(connection, layers, embedded)
    assert run(WatchedConnection(connection, see), layers, embedded).equal(expected)
    assert readers == {"blocks": [1, OUTPUT], "hyper": [*range(1, LAYERS + 1), OUTPUT]}.get(
        form.partition(",")[0], [*range(2, LAYERS + 1), OUTPUT]
    )
    changed = WatchedConnection(connection, lambda place, trace, read: read * 0)
    assert not run(changed, layers, embedded).equal(expected)
