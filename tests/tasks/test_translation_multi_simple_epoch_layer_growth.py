"""The growth task for many languages: its options, the batches of its stages, growth on its data, going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import tasks
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from growing_trainer import PEAK
from many_languages import configured, make_data

from fairseq_compat import UserError
from fairseq_depthwise.tasks.translation_multi_simple_epoch_layer_growth import (
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


@pytest.mark.parametrize("sampling", ["temperature", "RoundRobin"])
def test_stages_in_epochs_set_their_batches(data: Path, sampling: str) -> None:
    """RoundRobin keeps its batches from epoch to epoch, the others make them anew."""
    trainer = trainer_of(
        data, "--growth-stages", "1:1@90x1,2:2@30x2,3:1@200x1", "--sampling-method", sampling,
    )  # fmt: skip
    assert trainer.cfg.optimization.max_epoch == 4
    found = [epoch(trainer, number) for number in range(1, 5)]
    assert [{depth for depth, _ in updates} for updates in found] == [{1}, {2}, {2}, {3}]
    longest = [max(tokens for _, tokens in updates) for updates in found]
    for tokens, (above, limit) in zip(longest, [(30, 90), (0, 30), (0, 30), (90, 200)], strict=True):
        assert above < tokens <= limit


def test_stages_in_updates_grow_within_an_epoch(data: Path) -> None:
    trainer = trainer_of(data, "--growth-stages", "1:3u,2:2u,3:9u")
    depths = [depth for depth, _ in epoch(trainer, 1)]
    assert depths[:7] == [1, 1, 1, 2, 2, 3, 3]


def test_a_run_goes_on_at_the_depth_it_had(data: Path, tmp_path: Path) -> None:
    stages = ["--growth-stages", "1:3u,2:90u,3:", "--save-dir", tmp_path, "--max-update", 99]
    first = trainer_of(data, *stages)
    epoch(first, 1)
    first.consolidate_optimizer()
    position = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}}
    first.save_checkpoint(str(tmp_path / "checkpoint_last.pt"), position)
    again = trainer_of(data, *stages)
    assert len(again.get_model().encoder.layers) == 2
    again.load_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    assert again.get_num_updates() == first.get_num_updates() > 3
    assert again.get_lr() == first.get_lr() < PEAK
    deeper = trainer_of(data, "--growth-stages", "4:9u", "--growth-from", tmp_path / "checkpoint_last.pt")
    trained = first.get_model().state_dict()
    for name, value in deeper.get_model().encoder.layers[3].state_dict().items():
        assert torch.equal(value, trained[f"encoder.layers.1.{name}"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--growth-stages", "1:2u,2:", "--growth-side", "left"], "--growth-side left is not a choice"),
        (["--growth-stages", "1:2u,2:2u", "--encoder-layers", 5], "--encoder-layers 5 contradicts --growth-stages"),
    ],
)
def test_refusals(data: Path, options: list[Any], message: str) -> None:
    """One of each place of the checks, which the task for one pair of languages has, too."""
    with pytest.raises(UserError, match=message):
        trainer_of(data, *options)
