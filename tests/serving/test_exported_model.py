"""The programs that are exported: the model's own probabilities, at every step, for every variant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import MUTE_VARIANTS, SDT_VARIANTS, SOURCE, TARGET, VARIANTS, build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.serving import exported_model
from fairseq_depthwise.serving.exported_model import DecoderStepProgram, EncoderProgram, StateShape, export_programs

#: Further variants, of what surrounds the layers.
OTHERS: dict[str, dict[str, Any]] = {
    "learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True, "no_scale_embedding": True, "max_relative_positions": 2},
    "product quantization noise": {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4},
}

#: Small models that together have nearly all that has to be traced.
TRACED: dict[str, dict[str, Any]] = {
    "depth-wise": {
        "decoder_merge": "two-cells",
        "depthwise_kernel": "compile",
        "decoder_learned_pos": True,
        "encoder_layers": 1,
        "decoder_layers": 2,
    },
    "mute": {
        "name": "mute_transformer",
        "unit_sequential": True,
        "permutation_at_inference": "hard",
        "adaptive_softmax_cutoff": "5,8",
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
}

SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}


@torch.no_grad()
def decode(encode: Any, step: Any, model: Any, source: torch.Tensor, target: torch.Tensor, order: list[int]) -> None:
    """Compare every step with the model's; after two steps rows go on from the rows of ``order``."""
    *cross, padding = encode(source)
    own = [StateShape.of(model).zeros(len(source), 1, torch.float32)] * 2
    encoded, state = model.encoder(source), dict[str, Any]()
    rows = torch.tensor(order)
    for t in range(target.size(1)):
        if t == 2:
            own = [part.index_select(1, rows) for part in own]
            cross = [part.index_select(1, rows) for part in cross]
            padding, target = padding[rows], target[rows]
            model.decoder.reorder_incremental_state_scripting(state, rows)
            encoded = model.encoder.reorder_encoder_out(encoded, rows)
        output = model.decoder(target[:, : t + 1], encoded, incremental_state=state)
        expected = model.get_normalized_probs(output, log_probs=True)[:, -1]
        log_probs, *own = step(target[:, t], *own, *cross, padding)
        torch.testing.assert_close(log_probs, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", [*VARIANTS, *SDT_VARIANTS, *MUTE_VARIANTS, *OTHERS])
def test_steps_of_every_variant(variant: str) -> None:
    """What is traced, before it is traced."""
    model = build_tiny(**{**VARIANTS, **SDT_VARIANTS, **MUTE_VARIANTS, **OTHERS}[variant])
    decode(EncoderProgram(model), DecoderStepProgram(model), model, SOURCE, TARGET, [2, 0, 0])


@pytest.mark.parametrize("variant", TRACED)
def test_programs_take_any_size(variant: str) -> None:
    model = build_tiny(max_source_positions=7, max_target_positions=8, **TRACED[variant])
    programs = export_programs(model, "model.pt")
    encode, step = programs.encoder.module(), programs.decoder_step.module()
    decode(encode, step, model, SOURCE, TARGET, [2, 0, 0])
    decode(encode, step, model, SOURCE[1:2], TARGET[1:2], [0])
    longest = model.max_positions()
    decode(encode, step, model, torch.full((1, longest[0]), 5), torch.full((1, longest[1]), 6), [0])
    decode(encode, step, model, SOURCE[1:2, -1:], TARGET[1:2], [0])


def test_programs_that_differ_from_the_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a future release of torch might trace."""
    monkeypatch.setattr(exported_model, "_traced", lambda module, *_: SimpleNamespace(module=lambda: module))
    monkeypatch.setattr(exported_model, "_decoded_by_model", lambda *_: [torch.zeros(1, 12)] * 3)
    with pytest.raises(UserError, match=r"model.pt .* differ .* by 0.9"):
        export_programs(build_tiny(**SMALL), "model.pt")


def test_what_torch_cannot_trace_is_refused_with_its_reason() -> None:
    model = build_tiny(**SMALL)
    looks = model.encoder.layers[0].register_forward_pre_hook(lambda *_: float(torch.ones(1).sum() + model.x))
    with pytest.raises(UserError, match=r"encoder of model.pt .*: AttributeError"):
        export_programs(model, "model.pt")
    looks.remove()
