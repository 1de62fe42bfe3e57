"""Which files a model stands for, and where they are found that were moved since the training."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_compat.provenance import digest_of_file
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files, data_folders, input_files, moved_file
from fairseq_depthwise.translation.export_formats import format_of_graphs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint and data, and another as the current one."""
    folder = tmp_path / "run"
    for name in ("checkpoints", "data-bin"):
        (folder / name).mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint_best.pt").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_files_and_folders(run: Path) -> None:
    best = str(run / "checkpoints" / "checkpoint_best.pt")
    assert checkpoint_files(best) == [best]
    assert checkpoint_files(str(run / "checkpoints")) == [best]
    assert checkpoint_files(f"{best}{os.pathsep}{run / 'checkpoints'}") == [best, best]


def test_a_checkpoint_beside_other_files(run: Path) -> None:
    """The configuration of another program changes nothing; with an exported model the folder is ambiguous."""
    folder = run / "checkpoints"
    (folder / "config.json").write_text("{}")
    assert checkpoint_files(str(folder)) == [str(folder / "checkpoint_best.pt")]
    assert format_of_graphs(str(folder)) is None
    (folder / "config.json").write_text('{"format": 2, "architecture": "sdt_transformer"}')
    for find in (checkpoint_files, format_of_graphs):
        with pytest.raises(UserError, match=r"config\.json .*checkpoint_best\.pt"):
            find(str(folder))
    for name in ("model.safetensors", "encoder.onnx"):
        (folder / name).touch()
        assert input_files(str(folder / name)) == [str(folder / name)]


@pytest.mark.parametrize("content", ["", "{}", "[]", "[" * 100_000, '{"architectures": ["Other"]}', "\xff"])
def test_a_configuration_of_another_program_is_no_export(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    assert format_of_graphs(str(tmp_path)) is None
    with pytest.raises(UserError, match=r"has no checkpoint_best\.pt"):
        checkpoint_files(str(tmp_path))


def test_data_is_above_the_checkpoint_or_where_it_was(run: Path) -> None:
    checkpoint = str(run / "checkpoints" / "checkpoint_best.pt")
    assert data_folders("data-bin", checkpoint) == [str(run / "data-bin")]
    assert data_folders("run/data-bin", checkpoint) == [str(run / "data-bin")]
    assert data_folders(f"data-bin{os.pathsep}shard2", checkpoint) == [str(run / "data-bin")]
    assert data_folders(str(run / "data-bin"), "best.pt") == [str(run / "data-bin")]
    Path("data-bin").mkdir()
    assert data_folders("data-bin", checkpoint) == [str(run / "data-bin"), "data-bin"]


@pytest.mark.parametrize("recorded", ["other-bin", "/gone/data-bin", None])
def test_data_is_nowhere(recorded: str | None, run: Path) -> None:
    with pytest.raises(UserError, match=r"best\.pt .*with --data$"):
        data_folders(recorded, str(run / "checkpoints" / "checkpoint_best.pt"))


def test_files_are_also_in_or_beside_the_data(run: Path) -> None:
    checkpoint, data = str(run / "checkpoints" / "checkpoint_best.pt"), str(run / "data-bin")
    with pytest.raises(UserError, match=r"--bpe-codes /gone/codes, and no such file is here or beside the data"):
        moved_file("/gone/codes", checkpoint, data, "--bpe-codes")
    (run / "codes").touch()
    assert moved_file("/gone/codes", checkpoint, data, "--bpe-codes") == str(run / "codes")
    (run / "data-bin" / "codes").touch()
    assert moved_file("/gone/codes", checkpoint, data, "--bpe-codes") == str(run / "data-bin" / "codes")
    assert moved_file("codes", checkpoint, "elsewhere", "--bpe-codes") == str(run / "codes")
    (run / "codes").write_text("of the training")
    digest = digest_of_file(str(run / "codes"))
    Path("codes").touch()
    assert moved_file("codes", checkpoint, data, "--bpe-codes") == str(run / "codes")
    assert moved_file("codes", checkpoint, data, "--bpe-codes", digest) == str(run / "codes")
    (run / "codes").rename("codes")
    assert moved_file("codes", checkpoint, data, "--bpe-codes", digest) == "codes"
