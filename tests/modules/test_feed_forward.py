"""The feed-forward net against the second reading: values, gradients, where it drops, how it starts."""

from __future__ import annotations

import pytest
import torch
from module_checks import randn
from second_reading import read_activation, read_linear
from second_reading_sdt import read_feed_forward
from torch import nn

from fairseq_depthwise.modules.feed_forward import ACTIVATIONS, FeedForward

WIDTH, HIDDEN = 4, 6

every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def build(activation: str = "relu", dropout: float = 0.0) -> FeedForward:
    torch.manual_seed(1)
    net = FeedForward(embed_dim=WIDTH, hidden_dim=HIDDEN, activation=activation, activation_dropout=dropout).double()
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return net


@every_activation
def test_drops_between_activation_and_second_layer_only(activation: str) -> None:
    """Each value inside is either dropped or doubled; the same draw tells which."""
    net, values = build(activation, dropout=0.5), randn(3, 2, WIDTH)
    seen = set()
    for seed in range(10):
        torch.manual_seed(seed)
        keep = net.activation_dropout.mask(torch.Size((3, 2, HIDDEN)), values.device)
        torch.manual_seed(seed)
        inside = read_activation(activation, read_linear(net.first, values)) * keep * 2
        torch.testing.assert_close(net(values), read_linear(net.second, inside))
        seen.add(tuple(keep.flatten().tolist()))
    assert len(seen) == 10
    torch.testing.assert_close(net.eval()(values), read_feed_forward(net, values, activation))
