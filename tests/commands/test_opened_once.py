"""Every command opens the file of a model once: what was verified is what is used."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from growing_trainer import save as save_training
from growing_trainer import train, trainer_of
from tiny_checkpoints import TASK, tiny_checkpoint

#: The files that are opened while somebody counts; an audit hook cannot be removed.
_counts: list[Counter[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _counts and isinstance(arguments[0], str) and arguments[1] in ("r", "rb", None):
        _counts[-1][os.path.realpath(arguments[0])] += 1


sys.addaudithook(_audit)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    _counts.append(Counter())
    try:
        yield _counts[-1]
    finally:
        _counts.pop()


@pytest.fixture
def checkpoints(tmp_path: Path, data: str) -> list[str]:
    """Two checkpoints of one model, of the last two epochs."""
    paths = []
    for epoch in (1, 2):
        state, model = tiny_checkpoint(parts={"task": {**TASK, "data": data}})
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(epoch / 10)
        state["optimizer_history"][0]["num_updates"] = 100 * epoch
        paths.append(str(tmp_path / f"checkpoint{epoch}.pt"))
        torch.save(state, paths[-1])
    return paths


@pytest.mark.parametrize(
    "command",
    [
        "translate CHECKPOINT TEXT --tokenized --max-len-b 3 --no-compile --cpu",
        "grow CHECKPOINT FOLDER/grown.pt --layers 6",
        "export CHECKPOINT FOLDER/exported --format safetensors",
        "average --output FOLDER/mean.pt --last 2 FOLDER",
        "inspect CHECKPOINT",
        "params",
        "similarity CHECKPOINT --data DATA",
        "probe CHECKPOINT --data DATA --output FOLDER/probe --layers encoder.1 --beam 1 --subset valid --cpu",
    ],
)
def test_a_command_opens_each_checkpoint_once(
    command: str, checkpoints: list[str], data: str, tmp_path: Path, printed: Callable[..., str]
) -> None:
    text = tmp_path / "text"
    text.write_text("w0 w1\n", encoding="utf-8")
    if "--last" in command:
        (tmp_path / "checkpoint_2_200.pt").symlink_to("checkpoint2.pt")  # saved at the end of the epoch, too
    words = command.replace("CHECKPOINT", checkpoints[1]).replace("TEXT", str(text))
    words = words.replace("FOLDER", str(tmp_path)).replace("DATA", data)
    with counted() as opened:
        printed(*words.split())
    for path in checkpoints:
        assert opened[path] <= 1
    assert opened[checkpoints[1]] == (0 if command == "params" else 1)


def test_weights_are_opened_once(checkpoints: list[str], tmp_path: Path, printed: Callable[..., str]) -> None:
    folder, text = tmp_path / "exported", tmp_path / "text"
    text.write_text("w0 w1\n", encoding="utf-8")
    printed("export", checkpoints[0], folder, "--format", "safetensors")
    with counted() as opened:
        printed("translate", folder, text, "--tokenized", "--max-len-b", 3, "--no-compile", "--cpu")
    assert opened[str(folder / "model.safetensors")] == 1


def test_a_training_that_starts_from_a_model_opens_it_once(tmp_path: Path) -> None:
    shallow = trainer_of(task__growth_stages="2:")
    train(shallow, 1)
    path = str(save_training(shallow, tmp_path / "shallow.pt"))
    with counted() as opened:
        deep = trainer_of(
            task__growth_stages="4:", task__growth_from=path, task__growth_strategy="stack",
            optimization__max_update=4, task__save_dir=str(tmp_path / "none"),
        )  # fmt: skip
        train(deep, 1)
    assert opened[path] == 1
