"""Block connections: first values and sizes; what they compute is tested with the models' encoders."""

from __future__ import annotations

import pytest

from fairseq_depthwise.modules.connections.blocks import BlockConnection
from fairseq_depthwise.modules.connections.shape import StackShape

WIDTH, LAYERS = 4, 6


@pytest.mark.parametrize("block_size", [1, 2, 3, LAYERS])
def test_weights_start_as_means_and_have_no_upper_triangle(block_size: int) -> None:
    connection = BlockConnection(StackShape(WIDTH, LAYERS, block_size))
    blocks = LAYERS // block_size
    assert [row.tolist() for row in connection.rows] == [
        pytest.approx([1 / (b + 1)] * (b + 1)) for b in range(blocks + 1)
    ]
    norms = {name: parameter.shape for name, parameter in connection.named_parameters() if "norm" in name}
    assert len(norms) == 2 * (blocks + 1)  # LN_1 to LN_B and the one on top; none for the embedding
    counted = sum(parameter.numel() for parameter in connection.parameters())
    assert counted == (blocks + 1) * (blocks + 2) // 2 + (blocks + 1) * 2 * WIDTH


def test_layers_must_fill_blocks() -> None:
    with pytest.raises(ValueError, match=r"6 layers .* blocks of 4"):
        BlockConnection(StackShape(WIDTH, 6, 4))
