"""The criterion with the losses that a model offers: equality with fairseq's, weights, sums, what is logged."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from tiny_models import TINY, batch_of, build_tiny, task_of
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.criterions.label_smoothed_cross_entropy_with_auxiliary import (
    LabelSmoothedCrossEntropyWithAuxiliaryCriterion,
)
from fairseq_depthwise.models.base.model import AuxiliaryLoss
from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer
from fairseq_depthwise.models.sdt.similarity import inter_similarity_penalty

#: Weights of the two losses of :class:`Penalized`.
SIZE, UNLIKENESS = 0.03, 0.7


class Penalized(DepthwiseLSTMTransformer):
    """Offers a loss that reads a parameter of its own, and one that reads the encoder's layers."""

    reads_encoder_states = True

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        layers, padding = encoder_out["encoder_states"][1:], encoder_out["encoder_padding_mask"][0]
        return {
            "size": AuxiliaryLoss(self.own.square().sum(), SIZE),
            "unlikeness": AuxiliaryLoss(inter_similarity_penalty(layers, padding), UNLIKENESS),
        }


class WithoutExtra(DepthwiseLSTMTransformer):
    """Returns None beside its scores, as some of fairseq's models do."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        return super().forward(*args, **kwargs)[0], None


def tiny(family: type[DepthwiseLSTMTransformer]) -> FairseqEncoderDecoderModel:
    """Without dropout, so that the same batch gives the same loss."""
    torch.manual_seed(1)
    model = family.build_model(SimpleNamespace(**(TINY | {"dropout": 0.0})), task_of())
    model.own = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    return model


def stock_transformer() -> FairseqEncoderDecoderModel:
    torch.manual_seed(1)
    args = SimpleNamespace(**TINY, encoder_ffn_embed_dim=24, decoder_ffn_embed_dim=24, dropout=0.0)
    base_architecture(args)
    return TransformerModel.build_model(args, task_of())


def criterion_of(
    family: type[LabelSmoothedCrossEntropyCriterion] = LabelSmoothedCrossEntropyWithAuxiliaryCriterion,
    sentence_avg: bool = False,
    **options: Any,
) -> LabelSmoothedCrossEntropyCriterion:
    return family(task_of(), sentence_avg, label_smoothing=0.1, **options)


def gradients(model: FairseqEncoderDecoderModel) -> dict[str, Tensor | None]:
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


# --- without auxiliary losses ----------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"sentence_avg": True},
    {"report_accuracy": True, "ignore_prefix_size": 1},
]


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")  # the stock encoder's call
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize(
    "build",
    [stock_transformer, lambda: tiny(DepthwiseLSTMTransformer), lambda: tiny(WithoutExtra)],
    ids=["stock", "depthwise", "without extra"],
)
def test_is_fairseqs_where_the_model_offers_none(build: Any, reduce: bool, options: dict[str, Any]) -> None:
    model = build()
    found = []
    for family in (LabelSmoothedCrossEntropyCriterion, LabelSmoothedCrossEntropyWithAuxiliaryCriterion):
        loss, sample_size, log = criterion_of(family, **options)(model, batch_of(), reduce=reduce)
        loss.sum().backward()
        with metrics.aggregate(new_root=True) as meters:
            if reduce:
                family.reduce_metrics([log])
        found.append({"loss": loss, "n": sample_size, "log": log, "logged": dict(meters.get_smoothed_values())})
        found[-1]["gradients"] = {name: one for name, one in gradients(model).items() if one is not None}
    torch.testing.assert_close(*found)


# --- with auxiliary losses -------------------------------------------------------------------------------------------


def offered(model: FairseqEncoderDecoderModel, sample: dict[str, Any]) -> dict[str, float]:
    """The values that the model offers for a batch."""
    losses = model(**sample["net_input"])[1]["auxiliary_losses"]
    return {name: loss.value.item() for name, loss in losses.items()}


def translation_loss(model: FairseqEncoderDecoderModel, sample: dict[str, Any]) -> float:
    """By fairseq's criterion, which leaves out what the model offers and may do so in evaluation only."""
    model.eval()
    loss = criterion_of(LabelSmoothedCrossEntropyCriterion)(model, sample)[0].item()
    model.train()
    return loss


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_each_value_counts_by_its_weight_and_the_sample_size_and_is_logged(sentence_avg: bool) -> None:
    model, criterion = tiny(Penalized), criterion_of(sentence_avg=sentence_avg, report_accuracy=True)
    samples = [batch_of(0), batch_of(1, 2)]
    losses, weights, logs = zip(*(criterion(model, sample) for sample in samples), strict=True)
    assert list(weights) == ([1, 2] if sentence_avg else [3, 7])
    unlikeness = [offered(model, sample)["unlikeness"] for sample in samples]
    for sample, loss, weight, log, value in zip(samples, losses, weights, logs, unlikeness, strict=True):
        added = weight * (SIZE * 5.25 + UNLIKENESS * value)
        assert loss.item() == pytest.approx(translation_loss(model, sample) + added, rel=1e-6)
        assert log["loss"].item() == loss.item()
    with metrics.aggregate(new_root=True) as meters:
        LabelSmoothedCrossEntropyWithAuxiliaryCriterion.reduce_metrics(list(logs))
    found = {name: float(value) for name, value in meters.get_smoothed_values().items()}
    assert found["size"] == pytest.approx(5.25)
    mean = sum(weight * value for weight, value in zip(weights, unlikeness, strict=True)) / sum(weights)
    assert unlikeness[0] != pytest.approx(unlikeness[1], rel=1e-2)
    assert found["unlikeness"] == pytest.approx(mean, abs=1e-5)
    assert found["loss"] == pytest.approx(sum(losses).item() / sum(weights) / math.log(2), abs=1e-3)

    stock = criterion_of(LabelSmoothedCrossEntropyCriterion, sentence_avg=sentence_avg, report_accuracy=True)
    model.eval()
    with metrics.aggregate(new_root=True) as meters:
        stock.reduce_metrics([stock(model, sample)[2] for sample in samples])
    expected = meters.get_smoothed_values()
    for name in ("nll_loss", "ppl", "accuracy", "total", "n_correct"):
        assert found[name] == pytest.approx(float(expected[name])), name


# --- criterions that leave them out ----------------------------------------------------------------------------------


def test_training_without_the_losses_is_refused() -> None:
    criterion = CrossEntropyCriterion(task_of(), sentence_avg=False)
    sdt = build_tiny("sdt_transformer", inter_similarity_weight=0.5)
    assert criterion(sdt.eval(), batch_of())[0].isfinite().all()
    with pytest.raises(
        UserError, match=r"--inter-similarity-weight 0\.5 .*label_smoothed_cross_entropy_with_auxiliary"
    ):
        criterion(sdt.train(), batch_of())
    plain = build_tiny("sdt_transformer", inter_similarity_weight=0.0).train()
    assert criterion(plain, batch_of())[0].isfinite().all()
