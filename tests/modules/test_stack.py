"""What connects layers, against sums written out: simplest, depth-wise and block connections."""

from __future__ import annotations

import pytest
import torch
from module_checks import randn, require_gradients
from second_reading import read_norm
from second_reading_sdt import read_sum
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
    return randn(length, batch, WIDTH)


def naive(
    connection: BlockConnection, x: Tensor, block_size: int, skipped: tuple[int, ...] = ()
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the stack's output, what each layer reads and what each returns.

    y_0 = x; block b + 1 reads sum_{j=0..b} W[b, j] y_j; y_b = LN_b(its output); the output is LN(sum_j W[B, j] y_j).
    """
    y, read, returned = [x], [], []
    for b in range(LAYERS // block_size):
        x = read_sum(connection.rows[b], y)
        for index in range(b * block_size, (b + 1) * block_size):
            read.append(x)
            if index not in skipped:
                x = (index + 1) * x.tanh() + (index + 1)
            returned.append(x)
        y.append(read_norm(connection.norms[b], x))
    return read_norm(connection.final_norm, read_sum(connection.rows[LAYERS // block_size], y)), read, returned


# --- block connections -----------------------------------------------------------------------------------------------


@every_block_size
@pytest.mark.parametrize("skipped", [(), (1, 2), (0, 5), tuple(range(LAYERS))], ids=str)
def test_blocks_are_the_sums(block_size: int, skipped: tuple[int, ...]) -> None:
    """Also where LayerDrop passes layers by, at the borders of blocks and inside."""
    stack = build_block(block_size)
    output, read, shown = stack.run(embedding(), skipped)
    expected, expected_read, expected_shown = naive(stack.connection, embedding(), block_size, skipped)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(read, expected_read)
    torch.testing.assert_close(shown, expected_shown)


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


def test_a_state_can_be_used_again() -> None:
    """A layer that is computed a second time starts from the same state."""
    connection = build_block(1).connection
    start = connection.initial_state(embedding())
    first = [connection.layer_input(connection.update(start, 0, start.stream.tanh()), 1) for _ in range(2)]
    assert torch.equal(*first)
    assert torch.equal(start.stream, embedding())
    assert len(start.outputs) == 1


@pytest.mark.parametrize("block_size", [1, 3])
def test_gradients(block_size: int) -> None:
    require_gradients(build_block(block_size), (embedding(2, 1),))


@pytest.mark.parametrize(("layers", "block_size"), [(6, 4), (3, 6), (7, 2)])
def test_layers_must_fill_blocks(layers: int, block_size: int) -> None:
    with pytest.raises(ValueError, match=f"{layers} layers are not a number of whole blocks of {block_size}"):
        BlockConnection(embed_dim=WIDTH, layers=layers, block_size=block_size)


# --- the others ------------------------------------------------------------------------------------------------------


def test_the_simplest_passes_on_and_normalizes_the_end() -> None:
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
    torch.testing.assert_close(output, read_norm(connection.final_norm, shown[-1]))
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
    torch.testing.assert_close(connection.output(above), read_norm(connection.final_norm, 2 * embedding()))
