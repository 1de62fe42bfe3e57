"""The first process of a training locks its folder; others of it, and trainings that save nothing, do not."""

from __future__ import annotations

import os
from pathlib import Path

import fairseq_cli.train
import pytest
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_compat.patches.training.one_training_per_folder import adjust


@pytest.mark.parametrize(
    ("rank", "no_save", "locked"), [(0, False, [".training.lock"]), (1, False, None), (0, True, None)]
)
def test_who_locks(
    rank: int, no_save: bool, locked: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    seen = []

    def main(cfg: FairseqConfig) -> None:
        seen.append(os.listdir(folder) if folder.exists() else None)

    monkeypatch.setattr(fairseq_cli.train, "main", main)
    for _ in adjust(fairseq_cli.train):
        pass
    cfg = OmegaConf.create(
        {
            "checkpoint": {"save_dir": str(folder), "no_save": no_save},
            "distributed_training": {"distributed_rank": rank},
        }
    )
    fairseq_cli.train.main(cfg)
    assert seen == [locked]
    assert not folder.exists() or os.listdir(folder) == []
