"""The multi-unit model: impossible options, the penalty, what acts in training only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from second_reading_mute import read_penalty, read_projection
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny, task_of
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.models.mute.model import MuteTransformer
from fairseq_depthwise.modules.dropout import Dropout

MUTE = "mute_transformer"
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
NOISE = {"encoder_units": 4, "unit_inputs": "identity,swap,mask,disorder"}

# --- options that are impossible -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoder_units": 0}, "--encoder-units 0 is out of range; it must be at least 1 and below 9"),
        ({"encoder_units": 9}, "--encoder-units 9 is out of range; it must be at least 1 and below 9"),
        (
            {"unit_inputs": "identity,swop,mask"},
            "--unit-inputs identity,swop,mask has 'swop', which is no noise; the choices are identity, swap, mask, "
            "disorder",
        ),
        (
            {"unit_inputs": ""},
            "--unit-inputs  has '', which is no noise; the choices are identity, swap, mask, disorder",
        ),
        (
            {"unit_inputs": "identity,swap"},
            "--unit-inputs identity,swap has 2 names for --encoder-units 3; give one name for each unit, or one for "
            "all",
        ),
        (
            {"encoder_units": 1, "unit_inputs": "identity,swap"},
            "--unit-inputs identity,swap has 2 names for --encoder-units 1; give one name for each unit, or one for "
            "all",
        ),
        ({"unit_mask_rate": -0.1}, "--unit-mask-rate -0.1 is out of range; it must be at least 0 and below 1"),
        ({"unit_mask_rate": 1.0}, "--unit-mask-rate 1.0 is out of range; it must be at least 0 and below 1"),
        (
            {"unit_mask_rate": 0.1, "unit_inputs": "swap"},
            "--unit-mask-rate 0.1 is given, but no unit of --unit-inputs swap is masked; add mask there, or leave the "
            "rate out",
        ),
        (
            {"quant_noise_pq": 0.1},
            "--quant-noise-pq 0.1 would leave out the units, whose maps are batched; mute_transformer cannot be "
            "trained for quantization",
        ),
        ({"unit_noise_rate": -0.5}, "--unit-noise-rate -0.5 is out of range; it must be at least 0"),
        ({"unit_noise_rate": 1.5}, "--unit-noise-rate 1.5 is out of range; a probability is at most 1"),
        ({"unit_sharing": "all"}, "--unit-sharing all is not a choice; it must be one of none, attention, ffn"),
        (
            {"encoder_units": 1, "unit_sharing": "ffn"},
            "--unit-sharing ffn needs units that share; --encoder-units is 1, give 2 to 8",
        ),
        (
            {"encoder_units": 1, "unit_sequential": True},
            "--unit-sequential needs units to put in order; --encoder-units is 1, give 2 to 8",
        ),
        (
            {"permutation_penalty": 0.5},
            "--permutation-penalty 0.5 is given without --unit-sequential; there is no order to penalise, so leave it "
            "out",
        ),
        (
            {"unit_sequential": True, "permutation_penalty": -1.0},
            "--permutation-penalty -1 is out of range; it must be a number of at least 0",
        ),
        (
            {"permutation_at_inference": "hard"},
            "--permutation-at-inference hard is given without --unit-sequential; there is no order to harden",
        ),
        (
            {"unit_sequential": True, "permutation_at_inference": "firm"},
            "--permutation-at-inference firm is not a choice; it must be one of soft, hard",
        ),
        (
            {"relative_position_terms": "value"},
            "--relative-position-terms value is not a choice; it must be one of key-value, key",
        ),
        ({"max_relative_positions": -1}, "--max-relative-positions -1 is out of range; it must be at least 0"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3 does not divide --encoder-embed-dim 16; 2 does"),
        ({"activation_dropout": 1.0}, "--activation-dropout 1.0 is out of range; it must be at least 0 and below 1"),
    ],
    ids=str,
)
def test_a_value_that_is_impossible(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        MuteTransformer.build_model(SimpleNamespace(**(FAMILIES[MUTE] | options)), task_of())
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("options", "noises"),
    [
        ({"encoder_units": 8, "unit_inputs": "swap"}, ("swap",) * 8),
        ({"unit_inputs": " swap, mask ,disorder"}, ("swap", "mask", "disorder")),
        ({"encoder_units": 1, "unit_inputs": "disorder", "unit_noise_rate": 1}, ("disorder",)),
        ({"unit_sequential": True, "permutation_penalty": 0.0}, ("identity",) * 3),
    ],
    ids=str,
)
def test_what_is_possible_is_built(options: dict[str, Any], noises: tuple[str, ...]) -> None:
    model = build_tiny(MUTE, **options)
    assert {layer.inputs.noises for layer in model.encoder.layers} == {noises}
    with torch.no_grad():
        assert model.train()(torch.tensor([[5, 2]]), None, torch.tensor([[2, 5]]))[0].isfinite().all()


# --- the penalty -----------------------------------------------------------------------------------------------------


def offered_losses(training: bool = True, **options: Any) -> dict[str, Any]:
    return build_tiny(MUTE, **options).train(training)(SOURCE, None, TARGET)[1]["auxiliary_losses"]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("given", "weight"), [(None, 2.5e-4), (0.5, 0.5)])
def test_each_layer_offers_its_penalty(training: bool, given: float | None, weight: float) -> None:
    options = {"unit_sequential": True, "permutation_penalty": given}
    offered, model = offered_losses(training, **options), build_tiny(MUTE, **options)
    assert list(offered) == ["permutation_penalty_1", "permutation_penalty_2"]
    for layer, loss in zip(model.encoder.layers, offered.values(), strict=True):
        expected = read_penalty(read_projection(layer.order.raw.tolist()))
        assert loss.value.item() == pytest.approx(expected, rel=1e-5)
        assert loss.value.requires_grad
        assert (loss.weight, loss.option) == (weight, "--permutation-penalty")


@pytest.mark.parametrize("options", [{}, NOISE, {"unit_sequential": True, "permutation_penalty": 0.0}], ids=str)
def test_without_an_order_or_a_weight_there_is_none(options: dict[str, Any]) -> None:
    assert offered_losses(**options) == {}


# --- training --------------------------------------------------------------------------------------------------------


def loss_and_gradients(model: FairseqEncoderDecoderModel, seed: int = 5) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of the translation and, where there are some, the penalties."""
    torch.manual_seed(seed)
    scores, extra = model.train()(SOURCE, None, TARGET)
    loss = -scores.float().log_softmax(-1)[TARGET.ne(PAD)][:, 5].mean()
    for auxiliary in extra["auxiliary_losses"].values():
        loss = loss + auxiliary.weight * auxiliary.value
    loss.backward()
    return loss.detach(), {name: one.grad for name, one in model.named_parameters()}


@pytest.mark.parametrize("layerdrop", [0.0, 0.4])
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("sharing", ["none", "attention", "ffn"])
def test_activation_checkpointing_changes_memory_only(layerdrop: float, sequential: bool, sharing: str) -> None:
    """With noise and dropout: the layer that is computed again has the same."""
    options = {"unit_sequential": sequential, "unit_sharing": sharing, "encoder_layerdrop": layerdrop, **NOISE}
    for seed in (5, 6):
        found = [
            loss_and_gradients(build_tiny(MUTE, **options, attention_dropout=0.1, checkpoint_activations=given), seed)
            for given in (False, True)
        ]
        torch.testing.assert_close(*found)


def test_noise_is_in_training_only_and_comes_from_the_seed() -> None:
    noisy, plain = (build_tiny(MUTE, unit_noise_rate=rate, **NOISE, **NO_DROPOUT) for rate in (0.85, 0.0))
    with torch.no_grad():
        expected = plain.train()(SOURCE, None, TARGET)[0]
        torch.manual_seed(1)
        state = torch.get_rng_state()
        torch.testing.assert_close(noisy(SOURCE, None, TARGET)[0], expected)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(noisy(SOURCE, None, TARGET)[0], noisy(SOURCE, None, TARGET)[0])
        outputs = []
        for seed in range(8):
            torch.manual_seed(seed)
            outputs.append(noisy.train()(SOURCE, None, TARGET)[0])
            torch.manual_seed(seed)
            assert torch.equal(noisy(SOURCE, None, TARGET)[0], outputs[-1])
    assert len({output.sum().item() for output in outputs}) > 4


def test_every_parameter_has_a_gradient_whether_noise_is_on_or_off() -> None:
    """PyTorch's data parallel wrapper would wait for one that has none."""
    for rate in (0.0, 0.5, 1.0):
        model = build_tiny(MUTE, unit_sequential=True, unit_noise_rate=rate, **NOISE)
        _, found = loss_and_gradients(model)
        assert [name for name, gradient in found.items() if gradient is None] == []


def test_skipped_layers_keep_their_penalty() -> None:
    model = build_tiny(MUTE, unit_sequential=True, encoder_layerdrop=1 - 1e-9, **NOISE)
    _, found = loss_and_gradients(model)
    for name, gradient in found.items():
        if name.startswith("encoder.layers"):
            assert (gradient is None) != name.endswith("order.raw"), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{"unit_sequential": True}, {"unit_sharing": "attention"}, {}], ids=str)
def test_low_precision_trains(dtype: torch.dtype, options: dict[str, Any]) -> None:
    options = {**options, **NOISE, **NO_DROPOUT}
    expected_loss, expected = loss_and_gradients(build_tiny(MUTE, **options))
    loss, gradients = loss_and_gradients(build_tiny(MUTE, **options).to(dtype))
    assert loss.item() == pytest.approx(expected_loss.item(), rel=0.05)
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.dtype == dtype
        assert gradient.isfinite().all(), name
        largest = expected[name].abs().max().item()
        assert (gradient.float() - expected[name]).abs().max() < 0.25 * largest + 1e-3, name


def test_every_dropout_has_its_option() -> None:
    model = build_tiny(MUTE, dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    found = {name: part.probability for name, part in model.encoder.named_modules() if isinstance(part, Dropout)}
    expected = {"embedding.dropout": 0.1}
    for layer in ("layers.0", "layers.1"):
        expected |= {f"{layer}.dropout": 0.1, f"{layer}.self_attention.dropout": 0.2}
        expected[f"{layer}.feed_forward.activation_dropout"] = 0.3
    assert found == expected
