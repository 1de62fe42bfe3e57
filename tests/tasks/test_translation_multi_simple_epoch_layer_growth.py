"""The growth task for many languages: the batches of its stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import tasks
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from many_languages import configured, make_data

from fairseq_depthwise.tasks.translation_layer_growth import (
    TranslationMultiSimpleEpochLayerGrowthTask as ManyLanguages,
)

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call

NUMBER = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("many") / "data", NUMBER)


def trainer_of(data: Path, *options: object) -> Trainer:
    """A trainer before its first update, with a model whose numbers are the same in every test."""
    cfg = configured(data, NUMBER, *options, task="translation_multi_simple_epoch_layer_growth")
    task = tasks.setup_task(cfg.task)
    assert isinstance(task, ManyLanguages)
    torch.manual_seed(3)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def epoch(trainer: Trainer, number: int) -> list[tuple[int, int]]:
    """Train an epoch; of each update the depth it was taken with, and the tokens of its longest batch with padding."""
    batches = trainer.get_train_iterator(number, load_dataset=number == 1).next_epoch_itr(shuffle=True)
    trainer.begin_epoch(number)
    frequencies = trainer.cfg.optimization.update_freq
    frequency = frequencies[min(number, len(frequencies)) - 1]
    found, samples = [], []
    for sample in batches:
        samples.append(sample)
        if len(samples) == frequency or not batches.has_next():
            with metrics.aggregate("train_inner"):
                trainer.train_step(samples)
            sizes = [max(one["net_input"]["src_tokens"].numel(), one["target"].numel()) for one in samples]
            found.append((len(trainer.get_model().encoder.layers), max(sizes)))
            samples = []
    return found


def test_stages_in_epochs_set_their_batches(data: Path) -> None:
    trainer = trainer_of(data, "--growth-stages", "1:1@90x1,2:2@30x2,3:1@200x1", "--sampling-method", "temperature")
    assert trainer.cfg.optimization.max_epoch == 4
    found = [epoch(trainer, number) for number in range(1, 5)]
    assert [{depth for depth, _ in updates} for updates in found] == [{1}, {2}, {2}, {3}]
    longest = [max(tokens for _, tokens in updates) for updates in found]
    for tokens, (above, limit) in zip(longest, [(30, 90), (0, 30), (0, 30), (90, 200)], strict=True):
        assert above < tokens <= limit
