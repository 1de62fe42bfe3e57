"""``--depthwise-forget-bias``: where it acts, and that nothing else moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from second_reading import read_features
from tiny_models import SOURCE, TARGET, TINY, VARIANTS, task_of

from fairseq_depthwise.models.depthwise_lstm.cell import Gates
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


@pytest.mark.parametrize("options", [{}, {"decoder_merge": "two-cells"}, {"depthwise_gate_scope": "model"}], ids=str)
def test_a_model_with_a_bias_is_the_paper_with_that_bias(options: dict[str, Any]) -> None:
    """The second reading takes the biases from the model; here they are the option's alone."""
    model = build(depthwise_forget_bias=BIAS, **options).double()
    plain = build(**options).double()
    for gates in (module for module in plain.modules() if isinstance(module, Gates)):
        gates.norm_bias.data[1] += BIAS
    source, target = SOURCE[1], TARGET[1]
    with torch.no_grad():
        found = model(source[None], None, target[None])[0][0]
        read = F.linear(read_features(plain, source, target, options), plain.decoder.output_projection.weight)
    torch.testing.assert_close(found, read, rtol=1e-5, atol=1e-5)
