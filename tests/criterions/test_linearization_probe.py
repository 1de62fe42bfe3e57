"""The loss of the maps: of their layers' outputs, or of the translations made with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from omegaconf import OmegaConf
from probe_checkpoints import KINDS, model_and_options
from tiny_models import EXPECTED, PAD, batch_of, build_tiny, task_of
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.criterions.linearization_probe import (
    LinearizationProbeCriterion,
    LinearizationProbeCriterionConfig,
)
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

DEPTHWISE = "depthwise_lstm_transformer"

#: Real positions of all three sentences on each side.
POSITIONS = {"encoder": 12, "decoder": 10}

LAYERS = ("encoder.1", "encoder.2", "decoder.2")


def criterion_of(objective: str = "distill", **options: Any) -> LinearizationProbeCriterion:
    values = {"sentence_avg": False, "label_smoothing": 0.1, **options}
    cfg = OmegaConf.structured(LinearizationProbeCriterionConfig(probe_objective=objective, **values))
    return LinearizationProbeCriterion.build_criterion(cfg, task_of())


def linearized(kind: str = DEPTHWISE, which: str = "pair", **options: Any) -> LinearizedTransformer:
    """With maps of random numbers, in float64."""
    model = LinearizedTransformer(model_and_options(kind, **options)[0], LAYERS, which).double()
    torch.manual_seed(3)
    with torch.no_grad():
        for layer in model.linearized.values():
            for parameter in layer.linear.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.train()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Of all parameters that have one; they are taken away."""
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    return found


def errors_by_hand(model: LinearizedTransformer, kind: str, which: str, sample: dict[str, Any]) -> dict[str, float]:
    """Sum over real positions of the mean squared error: the trained model made anew, one sentence at a time."""
    trained = model_and_options(kind)[0].double()
    sums = dict.fromkeys(LAYERS, 0.0)

    def watch(name: str, layer: nn.Module) -> None:
        linear = model.linearized[name].linear

        def hook(_: nn.Module, inputs: tuple[Any, ...], returned: Any) -> None:
            below, above = inputs[0], returned[0] if type(returned) is tuple else returned
            if isinstance(below, DepthwiseState):
                below, above = (
                    torch.cat(state, dim=-1) if which == "pair" else state.output for state in (below, above)
                )
            for x, y in zip(below[:, 0], above[:, 0], strict=True):
                difference = linear.weight.mv(x) + linear.bias - y
                sums[name] += (difference.dot(difference) / len(y)).item()

        layer.register_forward_hook(hook)

    for name in LAYERS:
        side, number = name.split(".")
        watch(name, getattr(trained, side).layers[int(number) - 1])
    inputs = sample["net_input"]
    for source, target in zip(inputs["src_tokens"], inputs["prev_output_tokens"], strict=True):
        trained(source[source != PAD][None], None, target[target != PAD][None])
    return sums


def logged(logs: list[dict[str, Any]]) -> dict[str, float]:
    """What a run would log."""
    with metrics.aggregate(new_root=True) as meters:
        LinearizationProbeCriterion.reduce_metrics(logs)
    return {name: float(value) for name, value in meters.get_smoothed_values().items()}


# --- distill ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "which"), [*((kind, "pair") for kind in KINDS), (DEPTHWISE, "output")])
def test_the_mean_squared_error_over_real_positions(kind: str, which: str) -> None:
    model, sample = linearized(kind, which), batch_of()
    loss, sample_size, log = criterion_of()(model, sample)
    expected = errors_by_hand(model, kind, which, sample)
    assert sample_size == sum(POSITIONS[name.split(".")[0]] for name in LAYERS) == 34
    assert loss.item() == pytest.approx(sum(expected.values()), rel=1e-5)
    assert (log["ntokens"], log["nsentences"], log["sample_size"]) == (10, 3, 34)

    found = logged([log])
    assert found["loss"] == pytest.approx(loss.item() / 34, abs=1e-5)
    for name in LAYERS:
        assert found[f"mse_{name}"] == pytest.approx(expected[name] / POSITIONS[name.split(".")[0]], abs=1e-5)

    loss.backward()
    assert set(gradients(model)) == {
        f"{side}.layers.{int(number) - 1}.linear.{part}"
        for side, number in (name.split(".") for name in LAYERS)
        for part in ("weight", "bias")
    }


def test_batches_may_be_cut_in_any_way() -> None:
    """Of an accumulated update, or of several processes: sums over the parts, divided by the sum of sizes."""
    model, criterion = linearized(), criterion_of()
    found = []
    for samples in ([batch_of()], [batch_of(*rows) for rows in ((0,), (1, 2))]):
        logs, sizes = [], 0
        for sample in samples:
            loss, size, log = criterion(model, sample)
            loss.backward()
            logs.append(log)
            sizes += size
        found.append((logged(logs), {name: one / sizes for name, one in gradients(model).items()}))
    assert found[1][0] == pytest.approx(found[0][0], abs=2e-6)
    torch.testing.assert_close(found[1][1], found[0][1])


def test_sixteen_bits_do_not_overflow() -> None:
    """The square of 300 is more than float16 has."""
    model = linearized().half()
    with torch.no_grad():
        model.linearized["encoder.1"].linear.bias.fill_(300)
    loss = criterion_of()(model, batch_of())[0]
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(12 * 300**2, rel=0.05)


# --- task, and around it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DEPTHWISE, "transformer"])
def test_task_is_the_label_smoothed_translation_loss(kind: str) -> None:
    """Through all maps."""
    model, sample = linearized(kind), batch_of()
    loss, sample_size, log = criterion_of("task", report_accuracy=True)(model, sample)
    scores = model(**sample["net_input"])[0].log_softmax(-1)
    real = EXPECTED != PAD
    likely = scores.gather(2, EXPECTED[..., None])[..., 0][real]
    spread = 0.1 / 11
    expected = -((1 - 0.1 - spread) * likely.sum() + spread * scores[real].sum())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert sample_size == 10
    assert {"nll_loss", "n_correct"} <= set(log)
    assert set(logged([log])) >= {"loss", "nll_loss", "ppl", "accuracy"}
    loss.backward()
    assert len(gradients(model)) == 6


@pytest.mark.parametrize("objective", ["distill", "task"])
def test_other_models_are_refused(objective: str) -> None:
    with pytest.raises(UserError, match=r"--arch linearized_transformer; .* DepthwiseLSTMTransformer"):
        criterion_of(objective)(build_tiny(), batch_of())
