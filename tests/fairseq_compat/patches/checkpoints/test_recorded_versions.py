"""Checkpoints of a trainer say which versions wrote them; other files that fairseq saves do not."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from fairseq_compat import checkpoints


@pytest.fixture
def trainer(stock_options: Namespace, stock_task: Any, stock_model: Any) -> Trainer:
    cfg = convert_namespace_to_omegaconf(stock_options)
    trainer = Trainer(cfg, stock_task, stock_model, CrossEntropyCriterion(stock_task, sentence_avg=False))
    trainer.consolidate_optimizer()  # as fairseq does before it saves
    return trainer


def test_checkpoint_has_the_versions_as_plain_text_and_is_loaded(trainer: Trainer, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint.pt")
    trainer.save_checkpoint(path, {"val_loss": 4.5, "train_iterator": {"epoch": 2}})
    extra = checkpoints.load_checkpoint(path)["extra_state"]
    assert extra["val_loss"] == 4.5
    assert trainer.load_checkpoint(path)["train_iterator"] == {"epoch": 2}
    versions = extra["versions"]
    assert torch.__version__.startswith(versions["torch"])  # its build, such as +cu121, is not always said
    assert versions["python"] == sys.version.partition(" ")[0]
    assert {type(part) for pair in versions.items() for part in pair} == {str}


def test_other_files_are_saved_as_they_are(tmp_path: Path) -> None:
    given = {"extra_state": {}, "weight": torch.ones(2)}
    checkpoint_utils.torch_persistent_save(given, str(tmp_path / "file.pt"))
    assert checkpoints.load(tmp_path / "file.pt").keys() == given.keys()
    assert checkpoints.load(tmp_path / "file.pt")["extra_state"] == {}
