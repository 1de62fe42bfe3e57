"""``fairseq-depthwise average``: statuses, streams, and files that are not overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from fairseq_compat import checkpoints
from fairseq_depthwise import cli


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A training folder with three epochs, weights 1, 2 and 6, of which the last two were kept as best."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for epoch, value in ((1, 1.0), (2, 2.0), (3, 6.0)):
        state = {
            "cfg": {"checkpoint": {"maximize_best_checkpoint_metric": True}},
            "model": {"weight": torch.full((2,), value)},
            "extra_state": {},
        }
        torch.save(state, folder / f"checkpoint{epoch}.pt")
        if epoch > 1:
            torch.save(state, folder / f"checkpoint.best_bleu_{10 * epoch}.0000.pt")
    return folder


def weight(path: Path) -> float:
    return checkpoints.load_checkpoint(path)["model"]["weight"][0].item()


@pytest.mark.parametrize(
    ("chosen", "mean", "names"),
    [
        (["--last", "2"], 4.0, ["checkpoint2.pt", "checkpoint3.pt"]),
        (["--best", "2"], 4.0, ["checkpoint.best_bleu_30.0000.pt", "checkpoint.best_bleu_20.0000.pt"]),
        (["--last", "3"], 3.0, ["checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"]),
    ],
)
def test_folder(
    chosen: list[str], mean: float, names: list[str], run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run_folder / "average.pt"
    assert cli.main(["average", "--output", str(output), *chosen, str(run_folder)]) == 0
    assert weight(output) == mean
    paths = [str(run_folder / name) for name in names]
    captured = capsys.readouterr()
    assert captured.out == f"{output}: the mean of {len(names)} checkpoints: {', '.join(paths)}\n"
    assert captured.err.splitlines() == [f"reading {path}" for path in paths]


def test_files_and_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run_folder / "average.pt"
    paths = [str(run_folder / f"checkpoint{epoch}.pt") for epoch in (3, 1)]
    assert cli.main(["average", *paths, "--output", str(output), "--json"]) == 0
    assert weight(output) == 3.5
    assert json.loads(capsys.readouterr().out) == {"output": str(output), "inputs": paths}


def test_existing_output_is_replaced_only_with_force(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run_folder / "average.pt"
    output.write_bytes(b"mine")
    command = ["average", "--output", str(output), str(run_folder / "checkpoint3.pt")]
    assert cli.main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"fairseq-depthwise: error: --output {output} exists; give another name, or --force to replace it\n"
    )
    assert output.read_bytes() == b"mine"
    assert cli.main([*command, "--force"]) == 0
    assert weight(output) == 6.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--last", "9", "{folder}"], "--last 9: {folder} holds 3 checkpoints"),
        (["--best", "3", "{folder}"], "--best 3: {folder} holds 2 checkpoints"),
        (["{folder}"], "{folder} is a folder; add --last N or --best N"),
        (["--last", "2", "{folder}/checkpoint1.pt"], "--last and --best take one folder"),
        (["--last", "2", "{folder}", "{folder}"], "--last and --best take one folder"),
        (["{folder}/nowhere.pt"], "{folder}/nowhere.pt does not exist"),
        (["{folder}/checkpoint1.pt", "{folder}/text.pt"], "{folder}/text.pt is not a PyTorch file"),
        (["{folder}/checkpoint1.pt", "{folder}/other.pt"], "tensor weight has shape 3 in {folder}/other.pt and 2 in"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(
    given: list[str], said: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "text.pt").write_text("text", encoding="utf-8")
    torch.save({"cfg": {"x": 1}, "model": {"weight": torch.ones(3)}}, run_folder / "other.pt")
    before = sorted(os.listdir(run_folder))
    arguments = [text.format(folder=run_folder) for text in given]
    assert cli.main(["average", "--output", str(run_folder / "average.pt"), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [line for line in captured.err.splitlines() if not line.startswith("reading ")]
    assert line.startswith(f"fairseq-depthwise: error: {said.format(folder=run_folder)}")
    assert sorted(os.listdir(run_folder)) == before


def test_output_in_a_missing_folder_is_one_sentence(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run_folder / "nowhere" / "average.pt"
    assert cli.main(["average", "--output", str(output), str(run_folder / "checkpoint1.pt")]) == 1
    assert f"--output {output}: the folder {output.parent} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--last", "0"], ["--last", "two"], ["--last", "1", "--best", "1"]])
def test_wrong_option_is_status_2(given: list[str], run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["average", "--output", "x.pt", *given, str(run_folder)])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""
