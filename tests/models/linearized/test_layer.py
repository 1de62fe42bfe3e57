"""The layer that stands for a trained one: what it passes on, and what it shows of the one it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.linearized.layer import LinearizedLayer, mapped_part, observed

WIDTH = 3


class Trained(nn.Module):
    """A layer that is far from linear; it returns as many values beside its state as it is told to."""

    def __init__(self, besides: int = 0) -> None:
        super().__init__()
        self.besides = besides
        self.calls: list[tuple[Any, ...]] = []

    def forward(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, kwargs))
        output = DepthwiseState(state.cell.exp(), state.output.sin()) if isinstance(state, tuple) else state.exp()
        return (output, *["weights"] * self.besides) if self.besides else output

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        state_dict[name] = torch.ones(())


def tensors(count: int) -> list[Tensor]:
    return list(torch.randn(count, 2, 4, WIDTH, generator=torch.Generator().manual_seed(1)))


def linearized(which: str = "pair", *, pairs: bool = True, besides: int = 0) -> LinearizedLayer:
    """With a map of random numbers."""
    width = 2 * WIDTH if pairs and which == "pair" else WIDTH
    layer = LinearizedLayer(Trained(besides), width=width, which=which, returned_besides=besides)
    torch.manual_seed(2)
    nn.init.normal_(layer.linear.weight)
    nn.init.normal_(layer.linear.bias)
    return layer


def by_hand(layer: LinearizedLayer, *vectors: Tensor) -> Tensor:
    """``W x + b`` of each position on its own."""
    joined = torch.cat(vectors, dim=-1).flatten(0, 1)
    rows = [layer.linear.weight.mv(x) + layer.linear.bias for x in joined]
    return torch.stack(rows).view(*vectors[0].shape[:2], -1)


@pytest.mark.parametrize("besides", [0, 1, 2])
@pytest.mark.parametrize("which", ["vector", "pair", "output"])
def test_what_the_map_makes_of_the_state(which: str, besides: int) -> None:
    below: Any = tensors(1)[0] if which == "vector" else DepthwiseState(*tensors(2))
    layer = linearized("output" if which == "output" else "pair", pairs=which != "vector", besides=besides)
    returned = layer(below, None, causal=True)
    state, *others = returned if besides else (returned,)
    assert others == [None] * besides
    assert layer.intact.calls == []
    expected = by_hand(layer, *({"vector": [below], "pair": below, "output": below[:1]}[which]))
    if which == "vector":
        torch.testing.assert_close(state, expected)
    else:
        torch.testing.assert_close(state.output, expected[..., :WIDTH])
        torch.testing.assert_close(state.cell, expected[..., WIDTH:] if which == "pair" else below.cell)


@pytest.mark.parametrize(("which", "pairs"), [("pair", True), ("output", True), ("pair", False)])
def test_it_starts_as_the_identity(which: str, pairs: bool) -> None:
    layer = LinearizedLayer(Trained(), width=2 * WIDTH if pairs and which == "pair" else WIDTH, which=which)
    below: Any = DepthwiseState(*tensors(2)) if pairs else tensors(1)[0]
    torch.testing.assert_close(layer(below), below, rtol=0, atol=0)


def test_it_can_be_as_it_was_trained() -> None:
    (below,) = tensors(1)
    layer = linearized(pairs=False, besides=2)
    layer.replaced = False
    output, *others = layer(below, "padding", causal=False)
    assert torch.equal(output, below.exp())
    assert others == ["weights", "weights"]
    assert layer.intact.calls == [("padding", {"causal": False})]


@pytest.mark.parametrize("which", ["pair", "output"])
def test_an_observer_sees_the_trained_layer(which: str) -> None:
    below = DepthwiseState(*tensors(2))
    layers = [linearized(which, besides=besides) for besides in (0, 1)]
    seen: dict[int, tuple[Tensor, Tensor]] = {}
    with observed(layers, lambda place, x, y: seen.__setitem__(place, (x, y))):
        returned = [layer(below) for layer in layers]
    above = DepthwiseState(below.cell.exp(), below.output.sin())
    torch.testing.assert_close(tuple(returned[0]), tuple(above))
    assert returned[1][1] == "weights"
    for x, y in seen.values():
        assert torch.equal(x, mapped_part(below, which))
        assert torch.equal(y, mapped_part(above, which))
    assert list(seen) == [0, 1]
    # Afterwards, the maps are used again.
    state = layers[0](below)
    torch.testing.assert_close(mapped_part(state, which), by_hand(layers[0], mapped_part(below, which)))


def test_observing_ends_also_with_an_error() -> None:
    layer = linearized(pairs=False)

    def fail(*_: Any) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError), observed([layer], fail):
        layer(tensors(1)[0])
    assert layer.observer is None
    layer.replaced = False
    with observed([layer], lambda *_: None):
        pass
    assert layer.replaced is False


def test_old_checkpoints_are_renamed_by_the_trained_layer() -> None:
    state: dict[str, Tensor] = {}
    linearized().upgrade_state_dict_named(state, "encoder.layers.0")
    assert list(state) == ["encoder.layers.0.intact"]
    LinearizedLayer(nn.Identity(), width=1).upgrade_state_dict_named(state, "other")
    assert len(state) == 1
