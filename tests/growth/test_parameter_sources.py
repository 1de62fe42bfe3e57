"""From where each parameter of a grown model comes: names against tables written out by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import build_tiny

from fairseq_depthwise.growth.parameter_sources import Growth


def sdt(encoder_layers: int, block_size: int, decoder_layers: int = 2) -> FairseqEncoderDecoderModel:
    """A model of that depth."""
    options = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "encoder_block_size": block_size}
    return build_tiny("sdt_transformer", **options)


def layer_table(found: dict[str, str | None], side: str) -> dict[int, set[int | None]]:
    """Layer -> the layers that its parameters come from; None for a new one."""
    table: dict[int, set[int | None]] = {}
    for name, source in found.items():
        if name.startswith(f"{side}.layers."):
            index = int(name.split(".")[2])
            table.setdefault(index, set()).add(None if source is None else int(source.split(".")[2]))
            # The rest of the name never changes.
            assert source is None or source.split(".")[3:] == name.split(".")[3:]
    return table


def norms_table(found: dict[str, str | None]) -> dict[int, int | None]:
    """Block -> the block that its norm comes from; None for a new one."""
    table: dict[int, int | None] = {}
    for name, source in found.items():
        if name.startswith("encoder.connection.norms."):
            index = int(name.split(".")[3])
            block = None if source is None else int(source.split(".")[3])
            assert table.setdefault(index, block) == block  # weight and bias alike
    return table


def rows_table(found: dict[str, str | None]) -> list[str | None]:
    """The source of each row of the block connection, in order."""
    count = sum(name.startswith("encoder.connection.rows.") for name in found)
    return [found[f"encoder.connection.rows.{row}"] for row in range(count)]


def stay(found: dict[str, str | None], names: Iterable[str]) -> bool:
    return all(found[name] == name for name in names)


# --- sdt_transformer -------------------------------------------------------------------------------------------------


def old_rows(count: int) -> list[str]:
    return [f"encoder.connection.rows.{row}" for row in range(count)]


@pytest.mark.parametrize(
    ("block_size", "depth", "sources", "norms", "rows"),
    [
        (1, 3, [0, 1, 1, 2, 2], {0: 0, 1: 1, 2: 1, 3: 2, 4: 2}, [*old_rows(4), None, None]),
        (2, 4, [0, 1, 2, 3, 3, 3, 3, 3], {0: 0, 1: 1, 2: 1, 3: 1}, [*old_rows(3), None, None]),
        (2, 6, [0, 1, 2, 3, 4, 5, 2, 3, 4, 5], {0: 0, 1: 1, 2: 2, 3: 1, 4: 2}, [*old_rows(4), None, None]),
        # Six, as the paper: from 6 to 12 layers, from 12 to 18, from 12 to 24.
        (6, 6, [*range(6), *range(6)], {0: 0, 1: 0}, [*old_rows(2), None]),
        (6, 12, [*range(12), *range(6, 12)], {0: 0, 1: 1, 2: 1}, [*old_rows(3), None]),
        (6, 12, [*range(12), *range(12)], {0: 0, 1: 1, 2: 0, 3: 1}, [*old_rows(3), None, None]),
        (0, 3, [0, 1, 2, 1, 2], {}, []),
    ],
)
def test_blocks(block_size: int, depth: int, sources: list[int], norms: dict[int, int], rows: list[str | None]) -> None:
    model = sdt(len(sources), block_size)
    found, deep = Growth(model, sdt(depth, block_size).state_dict(), {"encoder": sources}), set(model.state_dict())
    assert set(found) == deep
    assert layer_table(found, "encoder") == {layer: {source} for layer, source in enumerate(sources)}
    assert norms_table(found) == norms
    assert rows_table(found) == rows
    moved = ("encoder.layers.", "encoder.connection.norms.", "encoder.connection.rows.")
    rest = {name for name in deep if not name.startswith(moved)}
    assert any(name.startswith("decoder.layers.") for name in rest)
    assert stay(found, rest)


@pytest.mark.parametrize("block_size", [1, 2])
def test_a_model_without_connections_gets_new_ones(block_size: int) -> None:
    """As when sdt_transformer starts from fairseq's transformer, which has no relative positions either."""
    shallow = {name: value for name, value in sdt(4, 0).state_dict().items() if "relative_positions" not in name}
    model = sdt(6, block_size)
    found, deep = Growth(model, shallow, {"encoder": [0, 1, 2, 3, 2, 3]}), set(model.state_dict())
    new = {name for name, source in found.items() if source is None}
    assert new == {name for name in deep if "relative_positions" in name or ".connection.rows." in name} | {
        name for name in deep if ".connection.norms." in name
    }
    assert found["encoder.layers.5.feed_forward.first.weight"] == "encoder.layers.3.feed_forward.first.weight"


# --- other things under these names ----------------------------------------------------------------------------------


def test_without_growth_all_stays() -> None:
    model = sdt(4, 2)
    names = model.state_dict()
    assert Growth(model, names, {}) == {name: name for name in names}
    assert Growth(model, {**names, "other": names["encoder.connection.rows.0"]}, {}) == {name: name for name in names}
