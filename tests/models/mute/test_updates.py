"""An update by fairseq's trainer with one batch is that with its parts, in every precision and with clipping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig
from tiny_models import batch_of, build_tiny, dictionary_of
from torch import Tensor

from fairseq_depthwise.growth.optimizer_moments import moments_of

OPTIONS = [
    "data", "--arch", "mute_transformer", "--criterion", "label_smoothed_cross_entropy_with_auxiliary",
    "--label-smoothing", "0.1", "--optimizer", "sgd", "--lr", "1", "--cpu", "--save-dir", "nowhere",
]  # fmt: skip

#: Way of training -> fairseq's options, and how far a gradient may be off for rounding, in proportion to the largest.
WAYS: dict[str, tuple[list[str], float]] = {
    "float32": ([], 1e-4),
    "float32, clipped": (["--clip-norm", "0.1"], 1e-4),
    "bf16": (["--bf16"], 0.03),
    "fp16, one vector": (["--fp16", "--fp16-init-scale", "8"], 0.01),
    "fp16, clipped": (["--fp16", "--fp16-init-scale", "8", "--fp16-no-flatten-grads", "--clip-norm", "0.1"], 0.01),
}

#: The three sentences in one batch, and in one each.
WHOLE, PARTS = [(0, 1, 2)], [(2,), (1,), (0,)]


@pytest.fixture(autouse=True)
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq asks CUDA for the device of its flat vector; a CPU tensor's number is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def configured(more: list[str]) -> DictConfig:
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), OPTIONS + more))


def updated(cfg: DictConfig, batches: list[tuple[int, ...]]) -> list[tuple[Tensor, Tensor]]:
    """The order of each layer and its change by an update, in float32."""
    dictionary = dictionary_of(12)
    task = TranslationTask(cfg.task, dictionary, dictionary)
    quiet: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = build_tiny("mute_transformer", unit_sequential=True, permutation_penalty=0.01, **quiet)
    for layer in model.encoder.layers:
        layer.order.raw.data -= 0.5
        layer.order.raw.data.fill_diagonal_(0.0)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    orders = [layer.order.raw.detach().float().clone() for layer in model.encoder.layers]
    with metrics.aggregate("train_inner"):
        trainer.train_step([batch_of(*sentences) for sentences in batches])
    assert trainer.get_num_updates() == 1
    moments = moments_of(trainer.optimizer, trainer.get_model())
    result = []
    for number, (layer, order) in enumerate(zip(model.encoder.layers, orders, strict=True)):
        master = moments[f"encoder.layers.{number}.order.raw"].master
        value = layer.order.raw if master is None else master
        result.append((order, value.detach().float() - order))
    return result


@pytest.mark.parametrize("way", WAYS)
def test_an_update_of_one_batch_is_that_of_its_parts(way: str) -> None:
    given, tolerance = WAYS[way]
    cfg = configured(given)
    one_batch, parts = updated(cfg, WHOLE), updated(cfg, PARTS)
    for (order, expected), (_, change) in zip(one_batch, parts, strict=True):
        largest = expected.abs().max()
        torch.testing.assert_close(change, expected, rtol=0, atol=tolerance * float(largest))
        # Entries at 0 and below come back, and never go further down.
        for step in (expected, change):
            assert step[order <= 0].min() == 0
            assert step[order <= 0].max() > 0
            assert step[order > 0].min() < 0
