"""What acts in training only: skipped layers, quantization noise, gate metrics."""

from __future__ import annotations

import functools
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
from fairseq_depthwise.modules.linear.prepacked import PrepackedLinear
from fairseq_depthwise.modules.quantization_noise import BlockNoiseLinear

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
    runs = [layers_that_ran(model, seed) for seed in range(60)]
    assert runs[:5] == [layers_that_ran(model, seed) for seed in range(5)]
    assert all(run == sorted(run) for run in runs)
    for number in (0, 3, 100, 103):
        share = sum(number in run for run in runs) / len(runs)
        assert 0.3 < share < 0.7


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


# --- quantization noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"depthwise_sharing": "none"}, {"depthwise_sharing": "all"}, {"name": "sdt_transformer"}],
    ids=str,
)
def test_every_linear_map_of_the_layers_has_the_noise(options: dict[str, Any]) -> None:
    model = build_tiny(**NOISE, **options)
    maps = [module for module in model.modules() if isinstance(module, nn.Linear)]
    silent = [module for module in maps if not isinstance(module, BlockNoiseLinear)]
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
    linear = BlockNoiseLinear(nn.Linear(64, 50, bias=False), 0.2, 8)
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
    assert model.encoder.layers[0].cell._joined is None
    assert isinstance(model.encoder.layers[0].cell.hidden_net.second, BlockNoiseLinear)
    assert isinstance(model.decoder.output_projection, PrepackedLinear)


@pytest.mark.parametrize(
    ("family", "part"),
    [("depthwise_lstm_transformer", "cell.gates.projection"), ("sdt_transformer", "feed_forward.first")],
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


# --- gate metrics ----------------------------------------------------------------------------------------------------


def logged(model: FairseqEncoderDecoderModel) -> dict[str, float]:
    with metrics.aggregate() as aggregate:
        model(SOURCE, None, TARGET)
    return aggregate.get_smoothed_values()


@pytest.mark.parametrize("merge", ["add", "two-cells"])
@pytest.mark.parametrize("kernel", ["eager", "compile"])
def test_gates_and_cells_are_logged_in_training(merge: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel shows no gates; this one stands in for those that take long to compile."""

    def run(
        kernel: str, joined: Tensor, skipped: Tensor | None, cell: Tensor, gates: Any, net: Any, eps: float
    ) -> DepthwiseState:
        return depthwise_cell._update(gates(joined), net(joined), skipped, DepthwiseState(cell, cell))

    monkeypatch.setattr(depthwise_cell, "choose_kernel", lambda *_, **__: kernel)
    monkeypatch.setattr(depthwise_cell, "run_fused", run)
    options = {"decoder_merge": merge, "depthwise_sharing": "none"}
    model = build_tiny(log_gates=True, **options)
    assert logged(model) == {}
    assert logged(build_tiny(**options).train()) == {}
    expected: dict[str, float] = {}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers, start=1):
            two = merge == "two-cells" and side == "decoder"
            for place, cell in ({"a": layer.middle_cell, "b": layer.cell} if two else {"": layer.cell}).items():

                def keep(cell: Any, inputs: Any, above: DepthwiseState, at: tuple[str, str]) -> None:
                    for gate, values in zip(("input", "forget", "output"), cell.gate_values(*inputs), strict=True):
                        expected[f"{at[0]}_{gate}_gate{at[1]}"] = values.mean().item()
                        expected[f"{at[0]}_{gate}_gate_deviation{at[1]}"] = values.std(correction=0).item()
                    expected[f"{at[0]}_cell_norm{at[1]}"] = above.cell.norm(dim=-1).mean().item()

                cell.register_forward_hook(functools.partial(keep, at=(side, f"_layer{number}{place}")))
    found = logged(model.train())
    for stack in {name.partition("_layer")[0] for name in expected}:
        of_layers = [value for name, value in expected.items() if name.startswith(f"{stack}_layer")]
        expected[stack] = sum(of_layers) / len(of_layers)
    assert found == pytest.approx(expected, abs=2e-3)


def test_logging_gates_changes_no_gradient() -> None:
    for one, other in zip(gradients(build_tiny()), gradients(build_tiny(log_gates=True)), strict=True):
        assert torch.equal(one, other)
