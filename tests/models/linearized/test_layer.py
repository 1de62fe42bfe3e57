"""The layer that stands for a trained one: what it passes on, and what it shows of the one it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.linearized.layer import LinearizedLayer, mapped_part, observed, with_mapped_part

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
def test_one_vector(besides: int) -> None:
    (below,) = tensors(1)
    layer = linearized(pairs=False, besides=besides)
    returned = layer(below, None, causal=True)
    output, *others = returned if besides else (returned,)
    torch.testing.assert_close(output, by_hand(layer, below))
    assert others == [None] * besides
    assert layer.intact.calls == []


@pytest.mark.parametrize("besides", [0, 1])
def test_a_pair_as_a_whole(besides: int) -> None:
    below = DepthwiseState(*tensors(2))
    layer = linearized("pair", besides=besides)
    returned = layer(below, None)
    state = returned[0] if besides else returned
    expected = by_hand(layer, *below)
    torch.testing.assert_close(state.output, expected[..., :WIDTH])
    torch.testing.assert_close(state.cell, expected[..., WIDTH:])


def test_the_output_of_a_pair_alone() -> None:
    below = DepthwiseState(*tensors(2))
    layer = linearized("output")
    state = layer(below, None)
    torch.testing.assert_close(state.output, by_hand(layer, below.output))
    assert state.cell is below.cell


@pytest.mark.parametrize("which", ["pair", "output"])
def test_the_parts_of_a_state_fit_together(which: str) -> None:
    first, second = DepthwiseState(*tensors(2)), tensors(1)[0]
    again = with_mapped_part(first, mapped_part(first, which), which)
    torch.testing.assert_close((again.output, again.cell), (first.output, first.cell))
    assert with_mapped_part(second, mapped_part(second, which), which) is second


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
