"""What evaluation computes anew: what was made of other files, whatever their names and dates."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made_of import digests, digests_in, is_made_of, making
from trained_runs import average_of

from fairseq_compat import checkpoints


def test_a_file_is_made_of_what_its_inputs_were(tmp_path: Path) -> None:
    source, result = tmp_path / "source", tmp_path / "result"
    source.write_text("a")
    inputs = {"files": digests([source]), "options": digests_in(["--beam", 4, source])}
    assert inputs["options"][:2] == ["--beam", "4"]
    assert not is_made_of(result, inputs)
    with making(result, inputs):
        result.write_text("of a")
        assert not is_made_of(result, inputs), "it may not be whole yet"
    assert is_made_of(result, inputs)
    source.write_text("b")
    assert not is_made_of(result, {**inputs, "files": digests([source])})
    with pytest.raises(KeyboardInterrupt), making(result, inputs):
        raise KeyboardInterrupt
    assert not is_made_of(result, inputs)


def test_a_mean_is_made_anew_where_a_checkpoint_changed_but_not_its_date(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    training: Any = SimpleNamespace(average=2, up_to_best=False)

    def mean_with(value: float) -> float:
        for number in (1, 2):
            path = folder / f"checkpoint{number}.pt"
            state = {"model": {"weight": torch.full((1,), value * number)}, "cfg": {"model": {}, "task": {}}}
            checkpoints.save(state, path)
            os.utime(path, (1e9, 1e9))
        average = average_of(training, tmp_path, folder / "checkpoint_best.pt")
        return checkpoints.load_checkpoint(average)["model"]["weight"].item()

    assert mean_with(2.0) == 3
    assert mean_with(4.0) == 6
    made = (tmp_path / "average.pt").stat().st_mtime_ns
    assert mean_with(4.0) == 6
    assert (tmp_path / "average.pt").stat().st_mtime_ns == made
