"""The gradient of a batch is that of its parts, for every parameter of every variant."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import MUTE_VARIANTS, SDT_VARIANTS, VARIANTS, batch_of, build_tiny, task_of
from torch import Tensor

from fairseq_depthwise.criterions.label_smoothed_cross_entropy_with_auxiliary import (
    LabelSmoothedCrossEntropyWithAuxiliaryCriterion,
)

ALL = VARIANTS | SDT_VARIANTS | MUTE_VARIANTS
every_variant = pytest.mark.parametrize("options", ALL.values(), ids=ALL)

#: What draws random numbers, which a batch and its parts draw differently.
QUIET = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "unit_noise_rate": 0.0}

#: The three sentences in one batch, in two and in three.
PARTS = {"two": [(0, 2), (1,)], "three": [(0,), (1,), (2,)]}


def gradients(model: FairseqEncoderDecoderModel, batches: list[tuple[int, ...]]) -> dict[str, Tensor]:
    """The gradient of each parameter after these batches, by target tokens."""
    criterion = LabelSmoothedCrossEntropyWithAuxiliaryCriterion(task_of(), sentence_avg=False, label_smoothing=0.1)
    model.zero_grad()
    tokens = 0
    for sentences in batches:
        loss, sample_size, _ = criterion(model, batch_of(*sentences))
        loss.backward()
        tokens += sample_size
    result = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        result[name] = parameter.grad / tokens
    return result


@every_variant
def test_one_batch_is_its_parts(options: dict[str, Any]) -> None:
    """Also where entries of a learned order are 0 and below, with its penalty."""
    model = build_tiny(**(options | QUIET)).double()
    for name, parameter in model.named_parameters():
        if name.endswith("order.raw"):
            parameter.data -= 0.4
            parameter.data.fill_diagonal_(0.0)
    expected = gradients(model.train(), [(0, 1, 2)])
    for batches in PARTS.values():
        for name, gradient in gradients(model, batches).items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10, msg=name)
