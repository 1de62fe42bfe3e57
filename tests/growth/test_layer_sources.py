"""The source of every layer, against tables written out by hand, and what no strategy can make."""

from __future__ import annotations

import re

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import STRATEGIES, layer_sources

#: Depth, new depth, strategy -> the source of each layer, from the lowest.
TABLES: dict[tuple[int, int, str], list[int]] = {
    # The paper's example: g = 6 on 12 layers.
    (12, 18, "top-most"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11],
    (12, 18, "top"): [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 11, 11, 11, 11, 11],
    (12, 18, "interpolation"): [0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11],
    # Doubling, which the authors' program calls "copy all".
    (6, 12, "top-most"): [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5],
    (6, 12, "top"): [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5],
    (6, 12, "interpolation"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
    # One more layer.
    (4, 5, "top-most"): [0, 1, 2, 3, 3],
    (4, 5, "top"): [0, 1, 2, 3, 3],
    (4, 5, "interpolation"): [0, 1, 2, 3, 3],
    # Something in between, where the three differ.
    (5, 8, "top-most"): [0, 1, 2, 3, 4, 2, 3, 4],
    (5, 8, "top"): [0, 1, 2, 3, 4, 4, 4, 4],
    (5, 8, "interpolation"): [0, 1, 2, 2, 3, 3, 4, 4],
    # One layer can only be doubled, except by the strategy that copies a layer more than once.
    (1, 2, "top-most"): [0, 0],
    (1, 2, "top"): [0, 0],
    (1, 2, "interpolation"): [0, 0],
    (1, 4, "top"): [0, 0, 0, 0],
    (2, 7, "top"): [0, 1, 1, 1, 1, 1, 1],
}


@pytest.mark.parametrize(("given", "expected"), TABLES.items(), ids=str)
@pytest.mark.parametrize("block_size", [0, 1])
def test_the_source_of_every_layer(given: tuple[int, int, str], expected: list[int], block_size: int) -> None:
    assert layer_sources(*given, block_size) == expected


@pytest.mark.parametrize(
    ("depth", "layers", "strategy", "block_size", "expected"),
    [
        (6, 12, "top-most", 6, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]),
        (6, 12, "top", 6, [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5]),
        (4, 6, "top-most", 2, [0, 1, 2, 3, 2, 3]),
        (4, 6, "top", 2, [0, 1, 2, 3, 3, 3]),
        (4, 8, "top-most", 2, [0, 1, 2, 3, 0, 1, 2, 3]),
        (6, 9, "top-most", 3, [0, 1, 2, 3, 4, 5, 3, 4, 5]),
    ],
)
def test_whole_blocks(depth: int, layers: int, strategy: str, block_size: int, expected: list[int]) -> None:
    assert layer_sources(depth, layers, strategy, block_size) == expected


def test_the_paper_is_the_default() -> None:
    assert layer_sources(3, 5) == [0, 1, 2, 1, 2]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("depth", [1, 2, 3, 6, 7])
def test_what_every_strategy_keeps(strategy: str, depth: int) -> None:
    """The bottom stays where it is, every old layer is still there, and order from below to above never turns."""
    for layers in range(depth + 1, 2 * depth + 1):
        sources = layer_sources(depth, layers, strategy)
        growth = layers - depth
        assert len(sources) == layers
        assert set(sources) == set(range(depth))
        assert sources[: depth - growth] == list(range(depth - growth))
        if strategy != "interpolation":
            assert sources[:depth] == list(range(depth))
        if strategy != "top-most":
            assert sources == sorted(sources)
        if strategy != "top":
            assert max(sources.count(layer) for layer in sources) == 2


@pytest.mark.parametrize(("depth", "layers"), [(1, 2), (6, 12), (5, 10)])
def test_at_most_doubling(depth: int, layers: int) -> None:
    for strategy in ("top-most", "interpolation"):
        assert len(layer_sources(depth, layers, strategy)) == layers
        with pytest.raises(UserError):
            layer_sources(depth, layers + 1, strategy)
    assert len(layer_sources(depth, 5 * layers, "top")) == 5 * layers


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "layers", "strategy", "block_size", "message"),
    [
        (6, 12, "all", 0, "the growth strategy all is unknown; it must be one of top-most, top, interpolation"),
        (6, 6, "top", 0, "a stack of 6 layers cannot be grown to 6; it must become deeper, at least 7"),
        (6, 3, "top-most", 3, "a stack of 6 layers cannot be grown to 3; it must become deeper, at least 9"),
        (
            6,
            13,
            "top-most",
            0,
            "top-most copies each layer at most once, so a stack of 6 layers cannot be grown to 13; grow to at most "
            "12, in several steps, or take the strategy top",
        ),
        (
            2,
            5,
            "interpolation",
            1,
            "interpolation copies each layer at most once, so a stack of 2 layers cannot be grown to 5; grow to at "
            "most 4, in several steps, or take the strategy top",
        ),
        (
            6,
            14,
            "top",
            6,
            "a stack of 6 layers cannot be grown to 14: with blocks of 6 layers the depth must be a multiple of 6, "
            "such as 12",
        ),
        (
            4,
            7,
            "top-most",
            2,
            "a stack of 4 layers cannot be grown to 7: with blocks of 2 layers the depth must be a multiple of 2, such "
            "as 6",
        ),
        (
            6,
            12,
            "interpolation",
            6,
            "interpolation puts copies between layers, which tears blocks of 6 layers apart; it needs a block size of "
            "0 or 1",
        ),
    ],
)
def test_what_cannot_be_made(depth: int, layers: int, strategy: str, block_size: int, message: str) -> None:
    with pytest.raises(UserError) as error:
        layer_sources(depth, layers, strategy, block_size)
    assert str(error.value) == message


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("depth", "block_size"), [(1, 0), (3, 0), (4, 0), (1, 1), (3, 1), (4, 2), (6, 2), (3, 3), (6, 3)]
)
def test_what_a_message_proposes_can_be_done(strategy: str, depth: int, block_size: int) -> None:
    """A depth that is named as the least, the most, or as fitting the blocks, is accepted."""
    if strategy == "interpolation" and block_size > 1:
        return  # which no depth can mend
    for layers in range(depth - 1, 4 * depth + 2):
        try:
            layer_sources(depth, layers, strategy, block_size)
        except UserError as error:
            (proposed,) = re.findall(r"(?:at least|at most|such as) (\d+)", str(error))
            assert len(layer_sources(depth, int(proposed), strategy, block_size)) == int(proposed)
