"""A fairseq trainer with a tiny model that grows, for the tests of growing while training."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf, open_dict
from tiny_models import batch_of, dictionary_of

from fairseq_depthwise.tasks.translation_layer_growth import TranslationLayerGrowthTask

WARMUP, PEAK = 2, 0.01

SIZES = ["embed-dim=16", "attention-heads=2", "ffn-embed-dim=24"]
OPTIONS = [
    "data", "--task", "translation_layer_growth", "--arch", "sdt_transformer", "--growth-stages", "1:2u,2:2u,3:",
    *(f"--{side}-{size}" for side in ("encoder", "decoder") for size in SIZES), "--decoder-layers", "1",
    "--encoder-block-size", "1", "--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0",
    "--share-all-embeddings", "--optimizer", "adam", "--lr", str(PEAK), "--lr-scheduler", "inverse_sqrt_restart",
    "--warmup-updates", str(WARMUP), "--criterion", "cross_entropy", "--cpu", "--max-update", "6",
    "--save-dir", "nowhere",
]  # fmt: skip


@functools.cache
def _parsed() -> DictConfig:
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, OPTIONS))


def configured(**changes: Any) -> DictConfig:
    """fairseq's configuration; ``task__growth_side="both"`` changes ``cfg.task.growth_side``."""
    cfg = copy.deepcopy(_parsed())
    with open_dict(cfg):
        for path, value in changes.items():
            OmegaConf.update(cfg, path.replace("__", "."), value, merge=False)
    return cfg


def task_of(cfg: DictConfig) -> TranslationLayerGrowthTask:
    dictionary = dictionary_of(12)
    return TranslationLayerGrowthTask(cfg.task, dictionary, dictionary)


def trainer_of(**changes: Any) -> Trainer:
    """A trainer before its first update, with a model whose numbers are the same in every test."""
    cfg = configured(**changes)
    task = task_of(cfg)
    torch.manual_seed(3)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


#: The batches of every update: two, of different sizes.
BATCHES = [batch_of(0, 1), batch_of(2)]


def save(trainer: Trainer, path: Path) -> Path:
    """Save a checkpoint within the first epoch."""
    path.parent.mkdir(exist_ok=True)
    trainer.consolidate_optimizer()
    position = {"epoch": 1, "iterations_in_epoch": trainer.get_num_updates()}
    trainer.save_checkpoint(str(path), {"train_iterator": position})
    return path


def train(trainer: Trainer, updates: int) -> list[tuple[int, float]]:
    """After each update: the depth that it was taken with, and the rate of the next one unless that one grows first."""
    found = []
    for _ in range(updates):
        with metrics.aggregate("train_inner"):
            trainer.train_step(BATCHES)
        found.append((len(trainer.get_model().encoder.layers), trainer.get_lr()))
    return found
