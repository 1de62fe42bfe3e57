"""What connects layers, against sums written out with plain numbers: simplest, depth-wise and block connections."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.depthwise_lstm.layers import DepthwiseConnection
from fairseq_depthwise.models.sdt.connection import BlockConnection
from fairseq_depthwise.modules.stack import Connection

WIDTH, LAYERS = 4, 6

#: p = 1 (dense), 2, 3 and L (one block).
every_block_size = pytest.mark.parametrize("block_size", [1, 2, 3, LAYERS])


class Stack(nn.Module):
    """Layers that anyone can compute by hand, n * tanh(x) + n for n = 1, 2, ..., and a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    def forward(self, embedded: Tensor, skipped: tuple[int, ...] = ()) -> Tensor:
        return self.run(embedded, skipped)[0]

    def run(self, embedded: Tensor, skipped: tuple[int, ...] = ()) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The stack's output, what each layer read, and what each showed to the outside."""
        state = self.connection.initial_state(embedded)
        read, shown = [], []
        for index in range(LAYERS):
            below = self.connection.layer_input(state, index)
            output = below if index in skipped else (index + 1) * below.tanh() + (index + 1)
            state = self.connection.update(state, index, output)
            read.append(below)
            shown.append(self.connection.representation(state))
        return self.connection.output(state), read, shown


def build_block(block_size: int) -> Stack:
    """With norms that are not the identity, and weights of either sign that differ."""
    torch.manual_seed(1)
    connection = BlockConnection(embed_dim=WIDTH, layers=LAYERS, block_size=block_size).double()
    for name, parameter in connection.named_parameters():
        nn.init.normal_(parameter, mean=0.5 if "norm" in name else 0.0)
    return Stack(connection)


def embedding(length: int = 3, batch: int = 2) -> Tensor:
    return torch.randn(length, batch, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def normalised(vector: list[float], norm: nn.Module) -> list[float]:
    mean = sum(vector) / len(vector)
    variance = sum((value - mean) ** 2 for value in vector) / len(vector)
    return [
        (value - mean) / math.sqrt(variance + 1e-5) * scale + shift
        for value, scale, shift in zip(vector, norm.weight.tolist(), norm.bias.tolist(), strict=True)
    ]


def naive(
    connection: BlockConnection, vector: list[float], block_size: int, skipped: tuple[int, ...] = ()
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """One position: the stack's output, what each layer reads and what each returns.

    y_0 = x; block b + 1 reads sum_{j=0..b} W[b, j] y_j; y_b = LN_b(its output); the output is LN(sum_j W[B, j] y_j).
    """
    rows = [row.tolist() for row in connection.rows]
    y = [vector]

    def weighted(b: int) -> list[float]:
        return [sum(rows[b][j] * y[j][k] for j in range(b + 1)) for k in range(WIDTH)]

    read, returned = [], []
    for b in range(LAYERS // block_size):
        x = weighted(b)
        for index in range(b * block_size, (b + 1) * block_size):
            read.append(x)
            if index not in skipped:
                x = [(index + 1) * math.tanh(value) + (index + 1) for value in x]
            returned.append(x)
        y.append(normalised(x, connection.norms[b]))
    return normalised(weighted(LAYERS // block_size), connection.final_norm), read, returned


# --- block connections -----------------------------------------------------------------------------------------------


@every_block_size
@pytest.mark.parametrize("skipped", [(), (1, 2), (0, 5), tuple(range(LAYERS))], ids=str)
def test_blocks_are_the_sums(block_size: int, skipped: tuple[int, ...]) -> None:
    """Also where LayerDrop passes layers by, at the borders of blocks and inside."""
    stack = build_block(block_size)
    embedded = embedding()
    output, read, shown = stack.run(embedded, skipped)
    for t in range(embedded.size(0)):
        for b in range(embedded.size(1)):
            vector = embedded[t, b].tolist()
            expected, expected_read, expected_shown = naive(stack.connection, vector, block_size, skipped)
            assert output[t, b].tolist() == pytest.approx(expected, rel=1e-10)
            for index in range(LAYERS):
                assert read[index][t, b].tolist() == pytest.approx(expected_read[index], rel=1e-10)
                assert shown[index][t, b].tolist() == pytest.approx(expected_shown[index], rel=1e-10)


@every_block_size
def test_weights_start_as_means_and_have_no_upper_triangle(block_size: int) -> None:
    connection = BlockConnection(embed_dim=WIDTH, layers=LAYERS, block_size=block_size)
    blocks = LAYERS // block_size
    assert [row.tolist() for row in connection.rows] == [
        pytest.approx([1 / (b + 1)] * (b + 1)) for b in range(blocks + 1)
    ]
    norms = {name: parameter.shape for name, parameter in connection.named_parameters() if "norm" in name}
    assert len(norms) == 2 * (blocks + 1)  # LN_1 to LN_B and the one on top; none for the embedding
    counted = sum(parameter.numel() for parameter in connection.parameters())
    assert counted == (blocks + 1) * (blocks + 2) // 2 + (blocks + 1) * 2 * WIDTH


def test_dense_connections_add_every_layer() -> None:
    """The authors' program never adds a block of one layer."""
    stack = build_block(1)
    state = stack.connection.initial_state(embedding())
    for index in range(LAYERS):
        assert len(state.outputs) == index + 1
        state = stack.connection.update(state, index, stack.connection.layer_input(state, index).tanh())
    assert len(state.outputs) == LAYERS + 1
    output = stack(embedding())
    for b in range(LAYERS + 1):
        for j in range(b + 1):
            changed = build_block(1)
            with torch.no_grad():
                changed.connection.rows[b][j] += 0.1
            assert not torch.allclose(changed(embedding()), output, atol=1e-6), (b, j)


def test_nothing_but_the_sum_crosses_a_border() -> None:
    """The block's input replaces the stream; the residual does not go past it."""
    stack = build_block(3)
    with torch.no_grad():
        stack.connection.rows[1].copy_(torch.tensor([2.0, 0.0]))
    _, read, _ = stack.run(embedding())
    torch.testing.assert_close(read[3], 2 * embedding())


def test_the_embedding_is_scaled_but_not_normalised() -> None:
    stack = build_block(2)
    with torch.no_grad():
        stack.connection.rows[0].fill_(3.0)
    torch.testing.assert_close(stack.run(embedding())[1][0], 3 * embedding())


def test_a_state_can_be_used_again() -> None:
    """A layer that is computed a second time starts from the same state."""
    connection = build_block(1).connection
    start = connection.initial_state(embedding())
    first = [connection.layer_input(connection.update(start, 0, start.stream.tanh()), 1) for _ in range(2)]
    assert torch.equal(*first)
    assert torch.equal(start.stream, embedding())
    assert len(start.outputs) == 1


@every_block_size
def test_gradients(block_size: int) -> None:
    stack = build_block(block_size)
    names, parameters = zip(*stack.named_parameters(), strict=True)

    def compute(embedded: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(stack, dict(zip(names, values, strict=True)), (embedded,))

    leaves = [parameter.detach().clone().requires_grad_() for parameter in parameters]
    assert torch.autograd.gradcheck(compute, (embedding(2, 1).requires_grad_(), *leaves))


@pytest.mark.parametrize(("layers", "block_size"), [(6, 4), (3, 6), (7, 2)])
def test_layers_must_fill_blocks(layers: int, block_size: int) -> None:
    with pytest.raises(ValueError, match=f"{layers} layers are not a number of whole blocks of {block_size}"):
        BlockConnection(embed_dim=WIDTH, layers=layers, block_size=block_size)


# --- the others ------------------------------------------------------------------------------------------------------


def test_the_simplest_passes_on_and_normalises_the_end() -> None:
    torch.manual_seed(1)
    connection = Connection(embed_dim=WIDTH).double()
    for parameter in connection.parameters():
        nn.init.normal_(parameter, mean=0.5)
    output, read, shown = Stack(connection).run(embedding())
    assert read[0].equal(embedding())
    for index in range(LAYERS):
        torch.testing.assert_close(shown[index], (index + 1) * read[index].tanh() + (index + 1))
        if index:
            assert read[index].equal(shown[index - 1])
    for t in range(3):
        expected = normalised(shown[-1][t, 1].tolist(), connection.final_norm)
        assert output[t, 1].tolist() == pytest.approx(expected, rel=1e-10)
    assert sum(parameter.numel() for parameter in connection.parameters()) == 2 * WIDTH


def test_the_depthwise_one_starts_both_states_and_ends_in_the_output() -> None:
    connection = DepthwiseConnection(embed_dim=WIDTH).double()
    state = connection.initial_state(embedding())
    assert state.output.equal(embedding())
    assert state.cell.equal(embedding())
    above = DepthwiseState(output=2 * embedding(), cell=7 * embedding())
    assert connection.layer_input(state, 0) is state
    assert connection.update(state, 0, above) is above
    assert connection.representation(above).equal(2 * embedding())
    expected = normalised((2 * embedding())[1, 0].tolist(), connection.final_norm)
    assert connection.output(above)[1, 0].tolist() == pytest.approx(expected, rel=1e-10)
