"""Layers of units against a reading unit by unit: values, gradients, padding, noise; the parts that they have."""

from __future__ import annotations

import pytest
import torch
from module_checks import randn
from second_reading_mute import Reading, read_encoder_layer
from torch import Tensor, nn

from fairseq_depthwise.models.mute.attention import UnitAttention
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer, UnitFeedForward
from fairseq_depthwise.models.mute.noise import UnitInputs
from fairseq_depthwise.models.mute.order import UnitOrder
from fairseq_depthwise.modules.relative_positions import RelativePositions

WIDTH, HEADS, HIDDEN, FAR, LENGTH = 4, 2, 6, 1, 4

#: B x T, as fairseq pads sources.
PADDING = torch.tensor([[True, False, False, False], [True, True, True, False], [False] * 4])

#: For each unit the positions whose inputs are read, T of them for each sentence; 4 is the mask.
ROWS = torch.tensor(
    [
        [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]],
        [[0, 3, 2, 1], [0, 1, 2, 3], [1, 0, 2, 3]],
        [[0, 2, 3, 1], [0, 1, 2, 3], [0, 3, 1, 2]],
        [[0, 1, 4, 3], [0, 1, 2, 4], [4, 1, 2, 3]],
    ]
)

every_number_of_units = pytest.mark.parametrize(
    ("units", "sharing"), [(1, "none"), (2, "attention"), (3, "ffn"), (4, "none")]
)
sequential_or_not = pytest.mark.parametrize("sequential", [False, True], ids=["sum", "sequential"])
noisy_or_not = pytest.mark.parametrize("noisy", [False, True], ids=["clean", "noisy"])


def build_layer(
    units: int, sharing: str = "none", sequential: bool = False, terms: str | None = "key-value"
) -> MultiUnitEncoderLayer:
    """Every parameter random, so that none can be forgotten; every unit's noise may be a mask."""
    torch.manual_seed(1)
    attentions, nets = (1 if sharing == shared else units for shared in ("attention", "ffn"))
    tables = None
    if terms:
        tables = RelativePositions(
            head_dim=WIDTH // HEADS,
            max_distance=FAR,
            value_term=terms == "key-value",
            one_table=True,
            units=attentions,
        )
    layer = MultiUnitEncoderLayer(
        units=units,
        embed_dim=WIDTH,
        self_attention=UnitAttention(units=attentions, embed_dim=WIDTH, heads=HEADS, relative_positions=tables),
        feed_forward=UnitFeedForward(units=nets, embed_dim=WIDTH, hidden_dim=HIDDEN, activation="gelu"),
        inputs=UnitInputs(noises=["mask"] * units, embed_dim=WIDTH, noise_rate=1.0),
        order=UnitOrder(units=units) if sequential else None,
    )
    for name, parameter in layer.named_parameters():
        if name == "order.raw":
            nn.init.uniform_(parameter)
        else:
            nn.init.normal_(parameter, mean=0.2)
    return layer.double()


def given(terms: str | None) -> Reading:
    return Reading(heads=HEADS, max_distance=FAR if terms else 0, on_values=terms == "key-value", activation="gelu")


def rows_of(units: int) -> Tensor:
    """U x T x B."""
    return ROWS[-units:].transpose(1, 2)


def read(
    layer: nn.Module, stream: Tensor, padding: Tensor | None, rows: Tensor | None, terms: str | None
) -> list[Tensor]:
    """Of every sentence its real positions' output."""
    outputs = []
    for b in range(stream.size(1)):
        first = 0 if padding is None else int(padding[b].sum())
        noise = None
        if rows is not None:
            noise = [[None if t == LENGTH else t - first for t in unit[first:, b].tolist()] for unit in rows]
        outputs.append(read_encoder_layer(layer, stream[first:, b], given(terms), noise))
    return outputs


def gradients(output: Tensor, stream: Tensor, layer: nn.Module, of_all: bool = True) -> dict[str, Tensor]:
    """Of a sum whose terms have different weights, by every parameter but the order's, whose gradient goes straight.

    ``of_all``: every parameter must take part; otherwise it has a gradient of zeros.
    """
    names, leaves = zip(*((n, p) for n, p in layer.named_parameters() if n != "order.raw"), strict=True)
    loss = (output * randn(*output.shape, seed=7)).sum()
    found = torch.autograd.grad(loss, (stream, *leaves), materialize_grads=not of_all)
    return dict(zip(("stream", *names), found, strict=True))


# --- the equations ---------------------------------------------------------------------------------------------------


@every_number_of_units
@sequential_or_not
@noisy_or_not
@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize("terms", ["key-value", "key", None])
def test_a_layer_is_the_equations(
    units: int, sharing: str, sequential: bool, noisy: bool, padding: Tensor | None, terms: str | None
) -> None:
    """Values and gradients."""
    layer, stream = build_layer(units, sharing, sequential, terms), randn(LENGTH, 3, WIDTH).requires_grad_()
    rows = rows_of(units) if noisy else None
    output = layer(stream, padding, rows)
    assert output.shape == stream.shape
    real = torch.cat([output[slice(None) if padding is None else ~padding[b], b] for b in range(3)])
    expected = torch.cat(read(layer, stream, padding, rows, terms))
    torch.testing.assert_close(real, expected, rtol=1e-9, atol=1e-9)
    expected_gradients = gradients(expected, stream, layer, of_all=False)
    for name, gradient in gradients(real, stream, layer).items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-9, atol=1e-9, msg=name)
