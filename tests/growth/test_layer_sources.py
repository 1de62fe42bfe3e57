"""The source of every layer, against tables written out by hand, and what no strategy can make."""

from __future__ import annotations

import re

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import STRATEGIES, layer_sources, new_layers

#: Depth, new depth, strategy -> the source of each layer, from the lowest.
TABLES: dict[tuple[int, int, str], list[int | None]] = {
    # The paper's example: g = 6 on 12 layers.
    (12, 18, "top-most"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11],
    (12, 18, "top"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 11, 11, 11, 11, 11],
    (12, 18, "interpolation"): [0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11],
    (12, 18, "middle"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    (12, 18, "random"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, None, None, None, None, None, None],
    # The whole stack once more, and twice.
    (2, 6, "stack"): [0, 1, 0, 1, 0, 1],
    (6, 12, "middle"): [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5],
    (6, 8, "middle"): [0, 1, 2, 3, 2, 3, 4, 5],
    (1, 4, "random"): [0, None, None, None],
    # Doubling, which the authors' program calls "copy all".
    (6, 12, "top-most"): [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5],
    (6, 12, "top"): [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5],
    (6, 12, "interpolation"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
    # Something in between, where the three differ.
    (5, 8, "top-most"): [0, 1, 2, 3, 4, 2, 3, 4],
    (5, 8, "top"): [0, 1, 2, 3, 4, 4, 4, 4],
    (5, 8, "interpolation"): [0, 1, 2, 2, 3, 3, 4, 4],
    (5, 8, "middle"): [0, 1, 2, 3, 1, 2, 3, 4],
    # One layer can only be doubled, except by the strategy that copies a layer more than once.
    (1, 2, "top-most"): [0, 0],
    (1, 2, "top"): [0, 0],
    (1, 2, "interpolation"): [0, 0],
    (1, 4, "top"): [0, 0, 0, 0],
    (2, 7, "top"): [0, 1, 1, 1, 1, 1, 1],
}


@pytest.mark.parametrize(("given", "expected"), TABLES.items(), ids=str)
@pytest.mark.parametrize("block_size", [0, 1])
def test_the_source_of_every_layer(given: tuple[int, int, str], expected: list[int | None], block_size: int) -> None:
    assert layer_sources(*given, block_size) == expected


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ((4, 6, "top-most"), {4, 5}),
        ((4, 6, "top"), {4, 5}),
        ((4, 6, "interpolation"), {3, 5}),
        ((4, 6, "middle"), {3, 4}),
        ((2, 6, "stack"), {2, 3, 4, 5}),
        ((4, 6, "random"), {4, 5}),
    ],
)
def test_which_layers_are_new_and_that_they_can_start_anew(given: tuple[int, int, str], new: set[int]) -> None:
    copies = layer_sources(*given)
    assert new_layers(copies) == new
    assert layer_sources(*given, init="zero") == copies
    anew = layer_sources(*given, init="random")
    assert anew == [None if layer in new else source for layer, source in enumerate(copies)]
    assert new_layers(anew) == new


def test_the_paper_is_the_default() -> None:
    assert layer_sources(3, 5) == [0, 1, 2, 1, 2]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("depth", [1, 2, 3, 6, 7])
def test_what_every_strategy_keeps(strategy: str, depth: int) -> None:
    """Every old layer is still there, in its order, and as many are new as the stack has grown by."""
    for layers in [2 * depth] if strategy == "stack" else range(depth + 1, 2 * depth + 1):
        sources = layer_sources(depth, layers, strategy)
        new = new_layers(sources)
        assert len(sources) == layers
        assert len(new) == layers - depth
        assert [source for layer, source in enumerate(sources) if layer not in new] == list(range(depth))
        if strategy not in ("top", "random"):
            assert max(sources.count(layer) for layer in sources) == 2


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "layers", "strategy", "block_size", "named"),
    [
        (6, 12, "all", 0, "growth strategy all .* top-most, top, interpolation, stack, middle, random"),
        (6, 9, "stack", 3, "stack of 6 layers .* to 9: .* such as 12"),
        (6, 6, "top", 0, "stack of 6 layers .* to 6; .* at least 7"),
        (6, 3, "top-most", 3, "stack of 6 layers .* to 3; .* at least 9"),
        (6, 13, "top-most", 0, "top-most .* stack of 6 layers .* to 13; .* at most 12"),
        (2, 5, "interpolation", 1, "interpolation .* stack of 2 layers .* to 5; .* at most 4"),
        (6, 14, "top", 6, "stack of 6 layers .* to 14: .* blocks of 6 layers .* such as 12"),
        (4, 7, "top-most", 2, "stack of 4 layers .* to 7: .* blocks of 2 layers .* such as 6"),
        (6, 12, "interpolation", 6, "interpolation .* blocks of 6 layers"),
    ],
)
def test_what_cannot_be_made(depth: int, layers: int, strategy: str, block_size: int, named: str) -> None:
    with pytest.raises(UserError, match=named):
        layer_sources(depth, layers, strategy, block_size)


SHAPES = [(1, 0), (3, 0), (4, 0), (1, 1), (3, 1), (4, 2), (6, 2), (3, 3), (6, 3)]
BETWEEN = ("interpolation", "middle")


@pytest.mark.parametrize(
    ("strategy", "depth", "block_size"),
    [
        (strategy, *shape)
        for strategy in STRATEGIES
        for shape in SHAPES
        if shape[1] <= 1 or strategy not in BETWEEN  # which no depth can mend; see below
    ],
)
def test_what_a_message_proposes_can_be_done(strategy: str, depth: int, block_size: int) -> None:
    """A depth that is named as the least, the most, or as fitting, is accepted."""
    refused = 0
    for layers in range(depth - 1, 4 * depth + 2):
        try:
            layer_sources(depth, layers, strategy, block_size)
        except UserError as error:
            (proposed,) = re.findall(r"(?:at least|at most|such as) (\d+)", str(error))
            assert len(layer_sources(depth, int(proposed), strategy, block_size)) == int(proposed)
            refused += 1
    assert refused >= 2  # the depth that it has, and less


@pytest.mark.parametrize("strategy", BETWEEN)
@pytest.mark.parametrize(("depth", "block_size"), [shape for shape in SHAPES if shape[1] > 1])
def test_blocks_that_every_depth_would_tear_are_what_is_named(strategy: str, depth: int, block_size: int) -> None:
    for layers in range(depth - 1, 4 * depth + 2):
        with pytest.raises(UserError, match=f"{strategy} .* tears blocks of {block_size} layers .* of 0 or 1"):
            layer_sources(depth, layers, strategy, block_size)
