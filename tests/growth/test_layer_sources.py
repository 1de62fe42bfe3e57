"""The source of every layer, against tables written out by hand, and what no strategy can make."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    # The whole stack once more, and twice; doubling, which the authors' program calls "copy all".
    (2, 6, "stack"): [0, 1, 0, 1, 0, 1],
    (6, 12, "top-most"): [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5],
    (6, 12, "interpolation"): [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
    # Something in between, where they differ.
    (5, 8, "top-most"): [0, 1, 2, 3, 4, 2, 3, 4],
    (5, 8, "top"): [0, 1, 2, 3, 4, 4, 4, 4],
    (5, 8, "interpolation"): [0, 1, 2, 2, 3, 3, 4, 4],
    (5, 8, "middle"): [0, 1, 2, 3, 1, 2, 3, 4],
    (6, 8, "middle"): [0, 1, 2, 3, 2, 3, 4, 5],
}


@pytest.mark.parametrize(("given", "expected"), TABLES.items(), ids=str)
def test_the_source_of_every_layer(given: tuple[int, int, str], expected: list[int | None]) -> None:
    assert layer_sources(*given) == layer_sources(*given, block_size=1) == expected


@pytest.mark.parametrize("unknown", [{"strategy": "bottom"}, {"init": "zeros"}])
def test_unknown_values_are_refused(unknown: dict[str, str]) -> None:
    with pytest.raises(UserError, match="|".join(unknown.values())):
        layer_sources(6, 8, **unknown)  # type: ignore[arg-type]  # mypy sees that the values are wrong


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(STRATEGIES), st.integers(1, 8), st.integers(1, 24), st.integers(0, 3))
def test_what_every_strategy_keeps(strategy: str, depth: int, layers: int, block_size: int) -> None:
    """Every old layer is still there, in its order, and as many are new as the stack has grown by; or it is refused."""
    impossible = layers <= depth or (strategy in ("interpolation", "middle") and block_size > 1)
    impossible |= strategy in ("top-most", "interpolation", "middle") and layers > 2 * depth
    impossible |= (strategy == "stack" and layers % depth > 0) or (block_size > 0 and layers % block_size > 0)
    if impossible:
        with pytest.raises(UserError, match=f"{depth} layers cannot be grown to {layers}|blocks of {block_size}"):
            layer_sources(depth, layers, strategy, block_size)
        return
    sources = layer_sources(depth, layers, strategy, block_size)
    new = new_layers(sources)
    assert len(sources) == layers
    assert len(new) == layers - depth
    assert [source for layer, source in enumerate(sources) if layer not in new] == list(range(depth))
    anew = layer_sources(depth, layers, strategy, block_size, init="random")
    assert anew == [None if layer in new else source for layer, source in enumerate(sources)]
