"""TensorBoard's event files: the same record as from a log; continued runs, cut tails, files that are none."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

from fairseq_compat import UserError
from fairseq_depthwise.reports.event_files import event_files, read_events

START = 1_700_000_000.0


def write(folder: Path, split: str, values: dict[int, dict[str, float]], *, begin: float = START) -> Path:
    """One process's file of a split; update n is measured n seconds after ``begin``."""
    writer = SummaryWriter(str(folder / split), filename_suffix=f".{begin:.0f}")
    writer.add_text("sys.argv", "fairseq-train data --lr 1 <b>")
    for update, metrics in values.items():
        for name, value in metrics.items():
            writer.add_scalar(name, value, update, walltime=begin + update)
    writer.close()
    (file,) = (folder / split).glob(f"*.{begin:.0f}")
    return file


def test_a_run(tmp_path: Path) -> None:
    write(tmp_path, "train_inner", {n: {"loss": 5 - n, "wall": n + 1, "depth": 2 + (n > 2)} for n in (1, 2, 3)})
    write(tmp_path, "valid", {2: {"loss": 4.5, "bleu": 3.0}})
    run = read_events(str(tmp_path))
    inner = run.series["train_inner"]["loss"]
    assert (inner.updates, inner.seconds, inner.values) == ([1, 2, 3], [2, 3, 4], [4, 3, 2])
    assert run.validation == "valid"
    assert run.series["valid"]["bleu"].seconds == [3]
    assert run.command == "fairseq-train data --lr 1 <b>"
    assert run.grown == {2: ""}


def test_a_continued_run(tmp_path: Path) -> None:
    write(tmp_path, "train_inner", {n: {"loss": 5, "wall": n} for n in (1, 2, 3)})
    write(tmp_path, "valid", {2: {"loss": 4.5}, 3: {"loss": 4.4}})
    # Two hours later, from the checkpoint behind update 2; update 3 is done again.
    write(tmp_path, "train_inner", {n: {"loss": 3, "wall": n - 2} for n in (3, 4)}, begin=START + 7200)
    write(tmp_path, "valid", {4: {"loss": 4.3}}, begin=START + 7200)
    run = read_events(str(tmp_path))
    inner = run.series["train_inner"]["loss"]
    assert (inner.updates, inner.seconds, inner.values) == ([1, 2, 3, 4], [1, 2, 3, 4], [5, 5, 3, 3])
    valid = run.series["valid"]["loss"]
    assert valid.updates == [2, 4]
    assert valid.values == pytest.approx([4.5, 4.3])
    assert run.continued_at == [2]


@pytest.mark.parametrize("missing", [1, 10, 45])
def test_a_tail_that_is_cut_off(missing: int, tmp_path: Path) -> None:
    file = write(tmp_path, "train_inner", {n: {"loss": 5.0} for n in range(1, 9)})
    file.write_bytes(file.read_bytes()[:-missing])
    run = read_events(str(tmp_path))
    assert run.series["train_inner"]["loss"].updates == list(range(1, 9 - (1 if missing < 20 else 2)))
    assert run.notes == []


def test_damage_in_the_middle_is_noted(tmp_path: Path) -> None:
    file = write(tmp_path, "train_inner", {n: {"loss": 5.0} for n in range(1, 9)})
    content = bytearray(file.read_bytes())
    content[-60] ^= 255
    content[-30] ^= 255
    content[-90] ^= 255
    file.write_bytes(content)
    run = read_events(str(tmp_path))
    assert 1 in run.series["train_inner"]["loss"].updates
    assert 8 not in run.series["train_inner"]["loss"].updates
    (note,) = run.notes
    assert note.startswith(f"{file} is read up to update ")


def test_files_that_are_none(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    assert event_files(str(tmp_path)) == {}
    for content in (b"hello, this is text", b""):
        (folder / "events.out.tfevents.1").write_bytes(content)
        with pytest.raises(UserError, match=str(tmp_path)):
            read_events(str(tmp_path))


def test_without_tensorboard_x(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train", {1: {"loss": 5.0}})
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("tensorboardX"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match="tensorboardX"):
        read_events(str(tmp_path))
