"""Which layer of the shallow stack each layer of the deep one starts from.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4.1 and Table 3. All layers count from 0.
"""

from __future__ import annotations

from fairseq_compat import UserError

#: top-most: the top g layers once more, in order; top: the top layer g times; interpolation: each of the top g layers
#: followed by its copy.
STRATEGIES = ("top-most", "top", "interpolation")


def layer_sources(depth: int, layers: int, strategy: str = "top-most", block_size: int = 0) -> list[int]:
    """For each of ``layers`` layers, the layer of a stack of ``depth`` that it starts from.

    For 12 to 18 layers: top-most is 0 to 11 and then 6 to 11; top is 0 to 11 and then six times 11; interpolation is
    0 to 5 and then 6, 6, 7, 7 up to 11, 11. Doubling is top-most with g equal to the depth.

    Args:
        depth: layers there are.
        layers: layers there shall be; the growth g is the difference.
        strategy: one of ``STRATEGIES``.
        block_size: layers in a connected block; 0 where the stack has no block connections.

    Raises:
        UserError: the strategy cannot make that depth; the message says which it can.
    """
    growth = layers - depth
    if strategy not in STRATEGIES:
        raise UserError(f"the growth strategy {strategy} is unknown; it must be one of {', '.join(STRATEGIES)}")
    if growth < 1:
        raise UserError(
            f"a stack of {depth} layers cannot be grown to {layers}; it must become deeper, at least "
            f"{_next_multiple(depth + 1, block_size or 1)}"
        )
    if block_size and layers % block_size:
        raise UserError(
            f"a stack of {depth} layers cannot be grown to {layers}: with blocks of {block_size} layers the depth must "
            f"be a multiple of {block_size}, such as {_next_multiple(depth + 1, block_size)}"
        )
    if strategy != "top" and growth > depth:
        raise UserError(
            f"{strategy} copies each layer at most once, so a stack of {depth} layers cannot be grown to {layers}; "
            f"grow to at most {2 * depth}, in several steps, or take the strategy top"
        )
    if strategy == "interpolation":
        if block_size > 1:
            raise UserError(
                f"interpolation puts copies between layers, which tears blocks of {block_size} layers apart; it needs "
                "a block size of 0 or 1"
            )
        kept = list(range(depth - growth))
        return kept + [source for source in range(depth - growth, depth) for _ in range(2)]
    old = list(range(depth))
    return old + (old[-growth:] if strategy == "top-most" else [depth - 1] * growth)


def _next_multiple(number: int, block_size: int) -> int:
    return -(-number // block_size) * block_size
