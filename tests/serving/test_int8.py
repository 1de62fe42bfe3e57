"""Whole models in 8 bits: every map, in encoder, decoder and each step; and what they keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.modules.quantization.scalar.modules import IntLinear
from probe_checkpoints import KINDS, checkpoint_of, data_in, model_and_options
from tiny_models import SOURCE, TARGET, VARIANTS
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.modules.linear.batched import UnitLinear
from fairseq_depthwise.modules.linear.quantized import _engine_for, _overflows
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.int8 import quantize
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions

MODELS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    *(("depthwise_lstm_transformer", options) for name, options in VARIANTS.items() if options),
    ("mute_transformer", {"encoder_units": 1}),
    ("mute_transformer", {"unit_sharing": "attention", "share_all_embeddings": True}),
    ("mute_transformer", {"unit_sharing": "ffn", "unit_sequential": True}),
]


#: The last step of inputs: processors without instructions for 8 bits have 7 of them.
LARGEST_STEP = 127 if _overflows(_engine_for(1)) else 255


def rounded(values: Tensor) -> Tensor:
    """Values in steps from the least to the greatest, 0 among them."""
    low, high = values.min().clamp(max=0), values.max().clamp(min=0)
    scale = ((high - low) / LARGEST_STEP).clamp(min=1e-12)
    zero = (-low / scale).round()
    return (((values / scale).round() + zero).clamp(0, LARGEST_STEP) - zero) * scale


def rounded_weight(weight: Tensor) -> Tensor:
    scales = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scales).round() * scales


class Reading:
    """A map with rounded weights and inputs, computed in floating point."""

    def __init__(self, module: nn.Linear | UnitLinear) -> None:
        self.module = module

    def __call__(self, values: Tensor) -> Tensor:
        module = self.module
        if isinstance(module, nn.Linear):
            return nn.functional.linear(rounded(values), rounded_weight(module.weight), module.bias)
        weights = [rounded_weight(weight.T) for weight in module.weight]
        if len(weights) == 1:
            return nn.functional.linear(rounded(values), weights[0], module.bias[0])
        inputs = values.expand(len(weights), -1, -1, -1)
        parts = zip(inputs, weights, module.bias, strict=True)
        return torch.stack([nn.functional.linear(rounded(one), weight, bias) for one, weight, bias in parts])


def maps_of(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, nn.Linear | UnitLinear)]


def log_probabilities(model: FairseqEncoderDecoderModel, *, by_steps: bool) -> Tensor:
    """Of a padded batch, as a whole or one target position after the other, B x T x V."""
    encoded = model.encoder(SOURCE, src_lengths=(SOURCE != 1).sum(dim=1))
    if not by_steps:
        return model.get_normalized_probs(model.decoder(TARGET, encoder_out=encoded), log_probs=True)
    state: dict[str, Any] = {}
    found = []
    for length in range(1, TARGET.size(1) + 1):
        output = model.decoder(TARGET[:, :length], encoder_out=encoded, incremental_state=state)
        found.append(model.get_normalized_probs(output, log_probs=True)[:, -1:])
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("by_steps", [False, True], ids=["whole", "steps"])
def test_every_map_computes_with_rounded_values(by_steps: bool) -> None:
    equal = 0
    for kind, options in MODELS:
        exact, read, model = (model_and_options(kind, **options)[0].eval() for _ in range(3))
        for module in maps_of(read):
            vars(module)["forward"] = Reading(module)
        for module in read.modules():
            if hasattr(module, "skip_embed_dim_check"):
                module.skip_embed_dim_check = True  # fairseq's attention calls its maps then
        model.make_generation_fast_()
        linears = maps_of(model)
        found = quantize([model])
        assert found.maps == found.quantized == len(linears), (kind, options)
        assert all(module.weight is None and module.bias is None for module in linears)
        with torch.no_grad():
            ours, expected, unrounded = (log_probabilities(one, by_steps=by_steps) for one in (model, read, exact))
        rounding = (expected - unrounded).abs().mean()
        assert 1e-3 < rounding < 0.2, (kind, options)
        assert (ours - unrounded).abs().mean() < 3 * rounding, (kind, options)
        equal += bool((ours - expected).abs().mean() < 0.01 * rounding)
    # A value, or a zero, that lies between two steps may be rounded the other way, and changes what comes after.
    assert equal > 0.7 * len(MODELS)


def test_sizes_and_shared_tables() -> None:
    for kind in KINDS:
        model, _ = model_and_options(kind, share_all_embeddings=True)
        table = next(module for module in model.modules() if isinstance(module, nn.Embedding))
        before = table.weight.detach().clone()
        parameters = sum(4 * parameter.numel() for parameter in model.parameters())
        maps = sum(4 * parameter.numel() for module in maps_of(model) for parameter in module.parameters())
        model.make_generation_fast_()
        found = quantize([model])
        assert torch.equal(table.weight, before)
        assert found.bytes_before == parameters
        kept = sum(4 * parameter.numel() for parameter in model.parameters())
        assert kept == parameters - maps + 4 * before.numel()
        assert kept < found.bytes_after < parameters
        assert str(found).startswith(f"int8: {found.maps} of {found.maps} linear layers; 0.")


def test_a_map_is_kept_once() -> None:
    """Though it is laid out by itself and with others."""
    model, _ = model_and_options("depthwise_lstm_transformer", depthwise_sharing="none")
    weights = [(module.weight.numel(), module.out_features) for module in maps_of(model)]
    model.make_generation_fast_()
    found = quantize([model])
    kept = sum(4 * parameter.numel() for parameter in model.parameters())
    # Beside each output's weights its scale, its zero point and the sum of its weights; these maps have no biases.
    assert found.bytes_after == kept + sum(values + 12 * outputs for values, outputs in weights)


def test_maps_that_several_layers_share_are_counted_once() -> None:
    model, _ = model_and_options("depthwise_lstm_transformer")
    model.make_generation_fast_()
    # In each stack gates and 3 layers: attention, twice in the decoder, and two maps of the hidden net. The vocabulary.
    assert quantize([model]).maps == (1 + 3 * (4 + 2)) + (1 + 3 * (8 + 2)) + 1


def test_maps_of_an_unknown_kind_are_counted() -> None:
    class TiedLinear(nn.Module):
        pass

    model, _ = model_and_options("sdt_transformer")
    model.add_module("other", TiedLinear())
    model.make_generation_fast_()
    found = quantize([model])
    assert found.maps == found.quantized + 1


def test_maps_with_noise_of_fairseqs() -> None:
    """As a training with `--quant-noise-scalar` leaves them."""
    model, _ = model_and_options("sdt_transformer")
    exact, _ = model_and_options("sdt_transformer")
    noisy = IntLinear(16, 24, p=0.5)
    before = model.encoder.layers[0].feed_forward.first
    noisy.load_state_dict(before.state_dict())
    model.encoder.layers[0].feed_forward.first = noisy
    model.make_generation_fast_()
    found = quantize([model])
    assert found.maps == found.quantized == len(maps_of(exact))
    assert noisy.weight is None
    with torch.no_grad():
        product = model.encoder.layers[0].feed_forward.first
        assert torch.allclose(product(torch.ones(2, 16)), before(torch.ones(2, 16)), atol=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("words") / "data-bin")


def test_ensembles_and_scores(data: str, tmp_path: Path) -> None:
    lines = ["w0 w1", "", "w3 w1 w2 w7 w7 w6", "w5"]
    paths = [checkpoint_of(tmp_path, kind, f"{kind}.pt") for kind in KINDS]
    exact, translator = (
        LoadedTranslator(":".join(paths), data=data, options=TranslatorOptions(beam=BeamOptions(2, 0.6, 8), int8=int8))
        for int8 in (False, True)
    )
    assert exact.quantization is None
    assert translator.quantization is not None
    assert translator.quantization.maps == sum(len(maps_of(model)) for model in exact.models)
    for one, other in zip(translator.translations(lines), exact.translations(lines), strict=True):
        assert one.hypotheses[0].score == pytest.approx(other.hypotheses[0].score, abs=0.1)
        assert (one.hypotheses[0].score != other.hypotheses[0].score) == bool(one.source)


def test_refused(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint_of(tmp_path, "sdt_transformer")
    with pytest.raises(
        UserError,
        match=r"^int8 computes on a CPU, and a GPU is in use; add device=\"cpu\", or give dtype=torch\.bfloat16",
    ):
        LoadedTranslator(path, data=data, options=TranslatorOptions(int8=True), device="cuda")
    with pytest.raises(UserError, match=r"int8 requires float32, not torch\.bfloat16"):
        TranslatorOptions(int8=True, dtype=torch.bfloat16)
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", [])
    with pytest.raises(UserError, match="has none"):
        LoadedTranslator(path, data=data, options=TranslatorOptions(int8=True))
