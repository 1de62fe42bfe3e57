"""``--depthwise-forget-bias``: where it acts, and that nothing else moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import TINY, VARIANTS, task_of

from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer

BIAS = -1.7


def build(**options: Any) -> DepthwiseLSTMTransformer:
    """A seeded model with its start values as they are."""
    torch.manual_seed(3)
    return DepthwiseLSTMTransformer.build_model(SimpleNamespace(**(TINY | options)), task_of()).eval()


@pytest.mark.parametrize(
    "options", [one for one in VARIANTS.values() if one.get("depthwise_cell") != "rnn"], ids=lambda one: f"{one}"
)
def test_only_the_forget_gates_of_every_cell_start_elsewhere(options: dict[str, Any]) -> None:
    """Every cell of both stacks has it, and no random number is drawn more, or otherwise."""
    plain, zero, shifted = build(**options), *(build(depthwise_forget_bias=bias, **options) for bias in (0.0, BIAS))
    biases = 0
    for (name, value), same, other in zip(
        plain.state_dict().items(), zero.state_dict().values(), shifted.state_dict().values(), strict=True
    ):
        assert torch.equal(value, same)
        expected = value.clone()
        if name.endswith("gates.norm_bias"):
            assert not value.any()
            expected[1] = BIAS
            biases += 1
        assert torch.equal(other, expected)
    cells_of_decoder = 2 if options.get("decoder_merge") == "two-cells" else 1
    assert biases == len(plain.encoder.layers) + cells_of_decoder * len(plain.decoder.layers)
