"""``--depthwise-forget-bias`` and ``--depthwise-gate-gain``: where they act, and that nothing else moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import TINY, VARIANTS, task_of

from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer

BIAS, GAIN = -1.7, 0.3


def build(**options: Any) -> DepthwiseLSTMTransformer:
    """A seeded model with its start values as they are."""
    torch.manual_seed(3)
    return DepthwiseLSTMTransformer.build_model(SimpleNamespace(**(TINY | options)), task_of()).eval()


@pytest.mark.parametrize(
    "options", [one for one in VARIANTS.values() if one.get("depthwise_cell") != "rnn"], ids=lambda one: f"{one}"
)
def test_only_the_norms_of_the_gates_of_every_cell_start_elsewhere(options: dict[str, Any]) -> None:
    """Every cell of both stacks has it, and no random number is drawn more, or otherwise."""
    plain = build(**options | {"depthwise_forget_bias": 0.0, "depthwise_gate_gain": 1.0})
    others = [
        build(**options | {"depthwise_forget_bias": bias, "depthwise_gate_gain": gain})
        for bias, gain in ((BIAS, 1.0), (0.0, GAIN))
    ]
    norms = 0
    for (name, value), shifted, quiet in zip(
        plain.state_dict().items(), *(other.state_dict().values() for other in others), strict=True
    ):
        expected = [value.clone(), value.clone()]
        if name.endswith("gates.norm_bias"):
            assert not value.any()
            expected[0][1] = BIAS
            norms += 1
        if name.endswith("gates.norm_weight"):
            assert (value == 1).all()
            expected[1][:] = GAIN
        assert torch.equal(shifted, expected[0])
        assert torch.equal(quiet, expected[1])
    cells_of_decoder = 2 if options.get("decoder_merge") == "two-cells" else 1
    assert norms == len(plain.encoder.layers) + cells_of_decoder * len(plain.decoder.layers)


def test_the_papers_model_starts_as_before_the_options() -> None:
    """The sum of its parameters and an output of a commit that had none of the other forms."""
    model = build()
    tokens = torch.tensor([[4, 5, 6, 7, 2]])
    with torch.no_grad():
        logits, _ = model(tokens, torch.tensor([5]), tokens)
    assert sum(float(value.double().sum()) for value in model.state_dict().values()) == pytest.approx(579.402294)
    assert logits.flatten()[:4].tolist() == pytest.approx([0.1593006, 0.9299119, 0.4188018, 0.2538131], abs=1e-5)
