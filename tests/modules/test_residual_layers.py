"""Residual layers: gradients, and where they drop; what they compute is tested with the models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from module_checks import Factors, randn
from tiny_models import build_tiny
from torch import nn

PADDING = torch.tensor([[False, False], [False, True]])


def layer_and_inputs(side: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """Return a layer of a tiny model in float64, its positional arguments and its others."""
    options = {f"{side}_{name}": 4 for side in ("encoder", "decoder") for name in ("embed_dim", "ffn_embed_dim")}
    model: Any = build_tiny("sdt_transformer", **options, activation_fn="gelu").double()
    stream, encoded = randn(2, 2, 4), randn(2, 2, 4, seed=3)
    if side == "encoder":
        return model.encoder.layers[0], (stream,), {"padding": PADDING}
    return model.decoder.layers[0], (stream, encoded), {"encoder_padding": PADDING}


def stream_of(returned: Any) -> torch.Tensor:
    return returned[0] if isinstance(returned, tuple) else returned


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_what_each_sub_layer_returns_is_dropped(side: str) -> None:
    """And neither the stream nor anything else: as if the last linear layers were so much larger."""
    layer, inputs, options = layer_and_inputs(side)
    other: Any = copy.deepcopy(layer)
    last = [other.self_attention.output_projection, other.feed_forward.second]
    if side == "decoder":
        last.insert(1, other.cross_attention.output_projection)
    factors = [2.0, 3.0, 5.0][: len(last)]
    layer.dropout = dropout = Factors(*factors)
    with torch.no_grad():
        for factor, linear in zip(factors, last, strict=True):
            linear.weight *= factor
            linear.bias *= factor
        torch.testing.assert_close(stream_of(layer(*inputs, **options)), stream_of(other(*inputs, **options)))
    assert dropout.factors == []
