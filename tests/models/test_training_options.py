"""What acts in training only: skipped layers, quantisation noise, recomputed activations, gate metrics."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.quantization_utils import quantize_model_scalar
from second_reading import read_embedding, read_norm
from tiny_models import FAMILIES, SOURCE, TARGET, build_tiny
from torch import Tensor, nn

from fairseq_depthwise.models.depthwise_lstm import cell as depthwise_cell
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.modules.quantization_noise import BlockNoise, add_block_noise

every_family = pytest.mark.parametrize("family", FAMILIES)

#: The maps of the units are batched; mute_transformer refuses this noise.
every_family_with_ordinary_maps = pytest.mark.parametrize(
    "family", [name for name in FAMILIES if name != "mute_transformer"]
)

LAYERDROP = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
NOISE = {"quant_noise_pq": 0.2, "depthwise_hidden_dim": 32}


def gradients(model: FairseqEncoderDecoderModel, seed: int = 5) -> list[Tensor | None]:
    model.train()
    torch.manual_seed(seed)
    model(SOURCE, None, TARGET)[0].square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


# --- layerdrop -------------------------------------------------------------------------------------------------------


def layers_that_ran(model: FairseqEncoderDecoderModel, seed: int) -> list[int]:
    """Numbers of the layers, the encoder's from 0 and the decoder's from 100."""
    ran: list[int] = []
    hooks = [
        nn.ModuleList.__getitem__(stack, number).register_forward_hook(
            lambda *_, number=number + first: ran.append(number)
        )
        for stack, first in ((model.encoder.layers, 0), (model.decoder.layers, 100))
        for number in range(len(stack))
    ]
    torch.manual_seed(seed)
    model(SOURCE, None, TARGET)
    for hook in hooks:
        hook.remove()
    return ran


@every_family
def test_layers_are_skipped_in_training_as_the_seed_says(family: str) -> None:
    model = build_tiny(family, encoder_layers=4, decoder_layers=4, **LAYERDROP).train()
    runs = [layers_that_ran(model, seed) for seed in range(100)]
    assert runs[:5] == [layers_that_ran(model, seed) for seed in range(5)]
    assert all(run == sorted(run) for run in runs)
    for number in (0, 3, 100, 103):
        share = sum(number in run for run in runs) / len(runs)
        assert 0.35 < share < 0.65


@every_family
def test_no_layer_is_skipped_in_evaluation(family: str) -> None:
    model = build_tiny(family, encoder_layers=2, **LAYERDROP)
    assert layers_that_ran(model, 1) == [0, 1, 100, 101, 102]
    plain = build_tiny(family, encoder_layers=2)
    assert torch.equal(model(SOURCE, None, TARGET)[0], plain(SOURCE, None, TARGET)[0])
    assert model.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("merge", ["add", "concat", "two-cells"])
def test_without_any_layer_embeddings_meet_the_last_norm(merge: str) -> None:
    model = build_tiny(encoder_layerdrop=1 - 1e-9, decoder_layerdrop=1 - 1e-9, dropout=0.0, decoder_merge=merge)
    model.double().train()
    source, target = SOURCE[1], TARGET[1]
    with torch.no_grad():
        encoded = model.encoder(source[None])["encoder_out"][0][:, 0]
        scores = model(source[None], None, target[None])[0][0]
        read_source = read_embedding(model.encoder.embedding.tokens.weight, source)
        read_target = read_embedding(model.decoder.embedding.tokens.weight, target)
        expected = read_norm(model.decoder.connection.final_norm, read_target)
        torch.testing.assert_close(
            encoded, read_norm(model.encoder.connection.final_norm, read_source), rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(
            scores, F.linear(expected, model.decoder.output_projection.weight), rtol=1e-5, atol=1e-5
        )


@every_family
def test_a_skipped_layer_has_no_gradient(family: str) -> None:
    model = build_tiny(family, encoder_layerdrop=1 - 1e-9)
    gradients(model)
    assert {parameter.grad is None for parameter in model.encoder.layers.parameters()} == {True}
    assert all(parameter.grad is not None for parameter in model.encoder.connection.parameters())
    assert all(parameter.grad is not None for parameter in model.decoder.parameters())


# --- quantisation noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"depthwise_sharing": "none"}, {"depthwise_sharing": "all"}, {"name": "sdt_transformer"}],
    ids=str,
)
def test_every_linear_map_of_the_layers_has_the_noise(options: dict[str, Any]) -> None:
    model = build_tiny(**NOISE, **options)
    maps = [module for module in model.modules() if isinstance(module, nn.Linear)]
    silent = [module for module in maps if not isinstance(vars(module).get("forward"), BlockNoise)]
    assert silent == [model.decoder.output_projection]


@every_family_with_ordinary_maps
def test_noise_is_in_training_only_and_comes_from_the_seed(family: str) -> None:
    model, plain = build_tiny(family, **NOISE), build_tiny(family, depthwise_hidden_dim=32)
    assert torch.equal(model(SOURCE, None, TARGET)[0], plain(SOURCE, None, TARGET)[0])
    first = gradients(model)
    assert all(gradient is not None and gradient.isfinite().all() for gradient in first)
    for one, other in zip(first, gradients(build_tiny(family, **NOISE)), strict=True):
        assert torch.equal(one, other)
    noiseless = gradients(plain)
    assert not any(torch.equal(one, other) for one, other in zip(first, noiseless, strict=True))


@every_family_with_ordinary_maps
def test_noise_leaves_the_weights_alone_and_is_repeated_in_a_recomputed_layer(family: str) -> None:
    plain, recomputed = (build_tiny(family, **NOISE, checkpoint_activations=given) for given in (False, True))
    before = {name: parameter.detach().clone() for name, parameter in plain.named_parameters()}
    for one, other in zip(gradients(plain), gradients(recomputed), strict=True):
        torch.testing.assert_close(one, other)
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_noise_drops_blocks_and_the_gradient_passes_straight_through() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(64, 50, bias=False)
    add_block_noise(linear, 0.2, 8)
    result = linear(torch.eye(64))  # the weights that were used, 64 x 50
    blocks, old = result.detach().T.reshape(-1, 8), linear.weight.detach().view(-1, 8)
    dropped = (blocks == 0).all(dim=1)
    assert 0.13 < dropped.float().mean() < 0.27
    torch.testing.assert_close(blocks[~dropped], old[~dropped] / 0.8)
    result.sum().backward()
    assert torch.equal(linear.weight.grad, torch.ones(50, 64))


def test_maps_with_noise_are_not_packed() -> None:
    """A packed map would not be called, and its noise with it."""
    model = build_tiny(**NOISE)
    with torch.no_grad():
        before = model(SOURCE, None, TARGET)[0]
        model.make_generation_fast_()
        torch.testing.assert_close(model(SOURCE, None, TARGET)[0], before)
    assert model.encoder.layers[0].cell._packed is None
    assert isinstance(vars(model.encoder.layers[0].cell.hidden_net.second)["forward"], BlockNoise)
    assert "forward" in vars(model.decoder.output_projection)


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("depthwise_lstm_transformer", "cell.gates.projection"),
        ("depthwise_lstm_transformer", "self_attention.query_projection"),
        ("sdt_transformer", "feed_forward.first"),
    ],
)
def test_scalar_noise_replaces_the_maps_and_is_trained(family: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--quant-noise-scalar`` is fairseq's own: its task replaces modules of the finished model."""
    monkeypatch.setattr(Tensor, "cuda", lambda self: self)  # fairseq moves its statistics to a GPU unasked
    model = quantize_model_scalar(build_tiny(family), SimpleNamespace(quant_noise_scalar=0.5))
    assert type(model.get_submodule(f"encoder.layers.0.{part}")).__name__ == "IntLinear"
    assert all(gradient is not None for gradient in gradients(model))
    model.eval()
    with torch.no_grad():
        before = model(SOURCE, None, TARGET)[0]
        model.make_generation_fast_()
        assert torch.equal(model(SOURCE, None, TARGET)[0], before)


# --- activation checkpointing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decoder_merge": "two-cells"},
        {"depthwise_cell": "rnn"},
        {"decoder_merge": "concat", "max_relative_positions": 2, "relative_position_terms": "key-value"},
        {"depthwise_sharing": "all", "depthwise_gate_scope": "model"},
        {"log_gates": True},
        LAYERDROP,
        *({"name": "sdt_transformer", "encoder_block_size": size} for size in (0, 1, 2, 4)),
        {"name": "sdt_transformer", "encoder_block_size": 1, **LAYERDROP},
    ],
    ids=str,
)
def test_activation_checkpointing_changes_memory_only(options: dict[str, Any]) -> None:
    dropout = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
    plain = gradients(build_tiny(**options, **dropout))
    recomputed = gradients(build_tiny(**options, **dropout, checkpoint_activations=True))
    for one, other in zip(plain, recomputed, strict=True):
        torch.testing.assert_close(one, other)


# --- gate metrics ----------------------------------------------------------------------------------------------------


#: Of each stack, and of each layer.
METRICS = [f"{gate}_gate{ending}" for gate in ("input", "forget", "output") for ending in ("", "_deviation")]
METRICS += ["cell_norm"]


def logged(model: FairseqEncoderDecoderModel) -> dict[str, float]:
    with metrics.aggregate() as aggregate:
        model(SOURCE, None, TARGET)
    return aggregate.get_smoothed_values()


def test_gates_are_logged_in_training() -> None:
    model = build_tiny(log_gates=True)
    assert logged(model) == {}
    assert logged(build_tiny().train()) == {}
    values = logged(model.train())
    assert set(values) == {
        f"{side}_{metric}{layer}"
        for side in ("encoder", "decoder")
        for metric in METRICS
        for layer in ("", "_layer1", "_layer2", "_layer3")
    }
    assert all(0 < value < 1 for name, value in values.items() if "_gate" in name)


@pytest.mark.parametrize("merge", ["add", "two-cells"])
def test_what_is_logged_is_the_gates(merge: str) -> None:
    """Gates of two values each: no scale in their norms, so that the shift alone decides, a quarter of it larger."""
    model = build_tiny(log_gates=True, decoder_merge=merge, depthwise_sharing="none").train()
    expected: dict[str, float] = {}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        cells = [cell for name, cell in stack.named_modules() if name.endswith(("middle_cell", ".cell"))]
        layers = ["1a", "1b", "2a", "2b", "3a", "3b"] if len(cells) == 6 else ["1", "2", "3"]
        # The cell of a layer comes before its middle cell among the modules.
        order = [1, 0, 3, 2, 5, 4] if len(cells) == 6 else [0, 1, 2]
        for number, gate in enumerate(("input", "forget", "output")):
            for layer, place in zip(layers, order, strict=True):
                gates, shift = cells[place].gates, number + float(layer[0]) / 4 + (layer[1:] == "b") / 8
                nn.init.zeros_(gates.norm_weight)
                nn.init.constant_(gates.norm_bias[number], shift)
                nn.init.constant_(gates.norm_bias[number, ::4], shift + 3)
                low, high = (1 / (1 + math.exp(-value)) for value in (shift, shift + 3))
                expected[f"{side}_{gate}_gate_layer{layer}"] = 0.75 * low + 0.25 * high
                expected[f"{side}_{gate}_gate_deviation_layer{layer}"] = (high - low) * math.sqrt(0.75 * 0.25)
            for metric in (f"{side}_{gate}_gate", f"{side}_{gate}_gate_deviation"):
                expected[metric] = sum(expected[f"{metric}_layer{layer}"] for layer in layers) / len(layers)
    values = {name: value for name, value in logged(model).items() if "_gate" in name}
    assert values == pytest.approx(expected, abs=2e-3)


def finish_eagerly(kernel: str, joined: Tensor, cell: Tensor, gates: Any, net: Any, eps: float) -> DepthwiseState:
    """In place of a kernel, which takes long to compile and shows no gates either."""
    return depthwise_cell._update(gates(joined), net(joined), DepthwiseState(cell, cell))


@pytest.mark.parametrize("kernel", ["eager", "compile"])
def test_the_logged_norm_is_that_of_the_cell_state(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise_cell, "choose_kernel", lambda *_, **__: kernel)
    monkeypatch.setattr(depthwise_cell, "run_fused", finish_eagerly)
    model = build_tiny(log_gates=True, decoder_merge="two-cells").train()
    norms: dict[str, float] = {}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers, start=1):
            cells = {"": layer.cell} if side == "encoder" else {"a": layer.middle_cell, "b": layer.cell}
            for place, cell in cells.items():

                def keep(*found: Any, name: str = f"{side}_cell_norm_layer{number}{place}") -> None:
                    lengths = [math.sqrt(sum(x * x for x in row)) for row in found[2].cell.flatten(0, 1).tolist()]
                    norms[name] = sum(lengths) / len(lengths)

                cell.register_forward_hook(keep)
    values = {name: value for name, value in logged(model).items() if "norm" in name}
    for side in ("encoder", "decoder"):
        of_side = [value for name, value in norms.items() if name.startswith(side)]
        norms[f"{side}_cell_norm"] = sum(of_side) / len(of_side)
    assert values == pytest.approx(norms, abs=2e-3)


def test_logging_gates_changes_no_gradient() -> None:
    for one, other in zip(gradients(build_tiny()), gradients(build_tiny(log_gates=True)), strict=True):
        assert torch.equal(one, other)
