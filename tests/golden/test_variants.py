"""Every variant of every family against numbers of before: parameters, first values, forward, gradients, decoding.

``variants.json`` holds the numbers; ``python tests/golden/test_variants.py`` writes it anew, for new variants only.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "support"))

from fairseq.models import MODEL_REGISTRY, FairseqEncoderDecoderModel
from growth_checkpoints import stock_model
from tiny_models import EOS, FAMILIES, MUTE_VARIANTS, SDT_VARIANTS, SOURCE, TARGET, VARIANTS, task_of

from fairseq_depthwise.models.linearized.model import LinearizedTransformer
from fairseq_depthwise.models.mute.order import UnitOrder

GOLDEN = Path(__file__).with_name("variants.json")

#: Name -> options, with the family as ``name``. Noise of units is on in every training forward.
ALL: dict[str, dict[str, Any]] = {
    **{f"depthwise, {name}": options for name, options in VARIANTS.items()},
    "depthwise, gain": {"depthwise_gate_gain": 0.5},
    "depthwise, forget bias": {"depthwise_forget_bias": 1.0},
    "depthwise, joint norm": {"depthwise_gate_norm": "joint"},
    "depthwise, skip": {"depthwise_attention_skip": True},
    "depthwise, open, share none, gelu": {
        "depthwise_forget_bias": 1.0,
        "depthwise_gate_gain": 0.5,
        "depthwise_attention_skip": True,
        "depthwise_sharing": "none",
        "depthwise_hidden_activation": "gelu",
    },
    "depthwise, concat, gelu": {"decoder_merge": "concat", "depthwise_hidden_activation": "gelu"},
    "depthwise, learned positions": {"encoder_learned_pos": True, "decoder_learned_pos": True},
    "depthwise, no positions": {"no_token_positional_embeddings": True, "no_scale_embedding": True},
    "depthwise, norms and one table": {"layernorm_embedding": True, "share_all_embeddings": True},
    **SDT_VARIANTS,
    "sdt, relu, learned positions": {
        "name": "sdt_transformer",
        "max_relative_positions": 0,
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
    },
    **MUTE_VARIANTS,
    "mute, quiet": {"name": "mute_transformer", "unit_inputs": "swap,mask,disorder", "unit_noise_rate": 0.0},
    "mute, masks by chance": {"name": "mute_transformer", "unit_inputs": "mask", "unit_mask_rate": 0.1},
    "linearized, pair": {"name": "linearized_transformer", "which": "pair"},
    "linearized, output": {"name": "linearized_transformer", "which": "output"},
    "stock": {"name": "transformer"},
}

every_variant = pytest.mark.parametrize("name", ALL)


def build(name: str = "depthwise_lstm_transformer", **options: Any) -> FairseqEncoderDecoderModel:
    """The model with the values that a training starts with under seed 1."""
    if name == "transformer":
        return stock_model(**options)[0]
    torch.manual_seed(1)
    if name == "linearized_transformer":
        return LinearizedTransformer(build(), ["encoder.2", "decoder.1"], options["which"])
    return MODEL_REGISTRY[name].build_model(SimpleNamespace(**(FAMILIES[name] | options)), task_of())


def model_of(name: str) -> FairseqEncoderDecoderModel:
    """The variant in float64 and evaluation mode; each parameter's values depend on its name alone."""
    model = build(**ALL[name]).double()
    for parameter_name, parameter in sorted(model.named_parameters()):
        seed = torch.Generator().manual_seed(zlib.crc32(parameter_name.encode()))
        values = torch.rand(parameter.shape, generator=seed, dtype=torch.float64)
        parameter.data = values + 0.5 if parameter.dim() == 1 else values - 0.5
    return model.eval()


def log_probabilities(model: FairseqEncoderDecoderModel) -> torch.Tensor:
    """B x T x V."""
    return torch.log_softmax(model(SOURCE, None, TARGET)[0], dim=-1)


def sums(*tensors: torch.Tensor) -> list[float]:
    """The sum of all numbers, of their absolute values, and of their products with a fixed wave, which sees places."""
    numbers = torch.cat([tensor.detach().double().flatten() for tensor in tensors])
    wave = torch.arange(len(numbers), dtype=torch.float64).cos()
    return [float(numbers.sum()), float(numbers.abs().sum()), float(numbers @ wave)]


def numbers_of(name: str) -> dict[str, Any]:
    """What is recorded of a variant."""
    first = build(**ALL[name])
    shapes = "\n".join(f"{key} {list(value.shape)}" for key, value in sorted(first.state_dict().items()))
    model = model_of(name)
    with torch.no_grad():
        found = log_probabilities(model)
    torch.manual_seed(5)
    log_probabilities(model.train()).square().sum().backward()
    for part in model.modules():
        if isinstance(part, UnitOrder):
            part.finish_gradient()
    gradients = [parameter.grad for _, parameter in sorted(model.named_parameters()) if parameter.grad is not None]
    return {
        "parameters": f"{shapes.count('[')} {hashlib.sha256(shapes.encode()).hexdigest()[:16]}",
        "first": sums(*(parameter for _, parameter in sorted(first.named_parameters()))),
        "forward": sums(found) + found[:, :2, 5].flatten().tolist(),
        "training": sums(*gradients),
    }


@every_variant
def test_numbers_are_those_of_before(name: str) -> None:
    recorded, found = json.loads(GOLDEN.read_text(encoding="utf-8"))[name], numbers_of(name)
    assert found.pop("parameters") == recorded.pop("parameters")
    for kind, numbers in found.items():
        assert numbers == pytest.approx(recorded[kind], rel=1e-5, abs=1e-6 * numbers[1]), kind


@every_variant
@torch.no_grad()
def test_decoding_step_by_step_is_the_whole_forward(name: str) -> None:
    """With the caches, over beams that are exchanged and a sentence that is finished; also ready for generation."""
    orders = {2: torch.tensor([1, 1, 2, 3, 5, 4]), 3: torch.tensor([1, 0, 4, 4])}
    words = torch.tensor([[EOS, 6, 5, 7], [EOS, 9, 8, 7], [EOS, 4, 11, 6]] * 2)
    reference = model_of(name)
    for model, tolerance in ((model_of(name), 1e-7), (model_of(name).float(), 1e-3)):
        if tolerance == 1e-3:
            model.make_generation_fast_()
        rows, tokens = torch.tensor([0, 0, 1, 1, 2, 2]), words
        encoded = model.encoder.reorder_encoder_out(model.encoder(SOURCE), rows)
        state: dict[str, Any] = {}
        for t in range(4):
            if t in orders:
                rows, tokens = rows[orders[t]], tokens[orders[t]]
                encoded = model.encoder.reorder_encoder_out(encoded, orders[t])
                model.decoder.reorder_incremental_state_scripting(state, orders[t])
            step = model.decoder(tokens[:, : t + 1], encoded, incremental_state=state)[0]
            whole = reference.decoder(tokens[:, : t + 1], reference.encoder(SOURCE[rows]))[0]
            torch.testing.assert_close(step[:, -1].double(), whole[:, -1], rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    known = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    lines = [f"{json.dumps(name)}: {json.dumps(known.get(name) or numbers_of(name))}" for name in ALL]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
