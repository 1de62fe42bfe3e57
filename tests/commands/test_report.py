"""``fairseq-depthwise report``: a page and numbers from logs, and errors about bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fairseq_depthwise import cli

LINE = "epoch 001:  {n} / 9 loss={loss}, ppl=4, wps=100, num_updates={n}, lr=0.1, wall={n}\n"
VALID = "epoch 001 | valid on 'valid' subset | loss 2.5 | ppl 5.66 | bleu 3.25 | num_updates 2\n"


def log(folder: Path, name: str = "train.log", loss: str = "3") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(LINE.format(n=1, loss=loss) + LINE.format(n=2, loss="nan") + VALID, encoding="utf-8")
    return folder


def report(*arguments: object) -> int:
    return cli.main(["report", *map(str, arguments)])


def test_a_page_and_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, page = log(tmp_path / "first"), tmp_path / "page.html"
    assert report(run / "train.log", "--output", page) == 0
    captured = capsys.readouterr()
    rows = [line.split("  ") for line in captured.out.splitlines()]
    assert rows[0][-1].strip() == "first"
    assert [row[-1].strip() for row in rows if "BLEU" in row[-2]] == ["3.25 after update 2"]
    assert captured.err.startswith(f"reading {run / 'train.log'}\n{page} written")
    content = page.read_text(encoding="utf-8")
    assert content.startswith("<!DOCTYPE html>")
    assert "3.25 after update 2" in content


def test_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = log(tmp_path / "first")
    torch.save({"model": {}, "cfg": {}, "extra_state": {"versions": {"torch": "2"}}}, run / "checkpoint_last.pt")
    assert report(run, "--json") == 0
    (first,) = json.loads(capsys.readouterr().out)["runs"]
    assert first["name"] == "first"
    assert first["series"]["train_inner"]["loss"] == {"updates": [1, 2], "seconds": [1, 2], "values": [3, None]}
    assert first["summary"]["loss"] == {"value": 2.5, "update": 2}
    assert first["summary"]["not_finite"] == {"loss": 1}
    assert first["versions"] == {"torch": "2"}
    assert not list(tmp_path.glob("*.html"))


def test_runs_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        log(tmp_path / "a", "x.log") / "x.log",
        log(tmp_path / "b", "x.log"),
        log(tmp_path / "b", "x.log") / "x.log",
    ]
    assert report(*paths, "--json") == 0
    names = [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert len(set(names)) == 3
    assert names[0] == "a/x.log"


def test_a_page_is_replaced_with_force(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    assert report(log(tmp_path / "run"), "--output", page, "--force") == 0
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}"], "report needs --output PAGE.html, or --json for the numbers alone"),
        (["{run}", "--output", "{tmp}/page.pdf"], "--output {tmp}/page.pdf: the name must end in .html"),
        (["{run}", "--output", "{tmp}/no/page.html"], "--output {tmp}/no/page.html: the folder {tmp}/no does"),
        (["{run}", "--output", "{tmp}/old.html"], "--output {tmp}/old.html exists; give another name, or --force"),
        (["{tmp}/none", "--json"], "{tmp}/none does not exist; give the log of a training"),
        (["{run}", "{run}/", "--json"], "{run} is given twice; give each run once"),
        (["{tmp}/old.html", "--json"], "{tmp}/old.html is not a log of fairseq-train"),
        (["{tmp}/empty.log", "--json"], "{tmp}/empty.log is empty"),
        (["{tmp}/several", "--json"], "{tmp}/several holds a.log, b.log; name the run to report, such as"),
        (["{tmp}/folder", "--json"], "{tmp}/folder holds no training: it has neither train.log nor another *.log"),
    ],
)  # fmt: skip
def test_bad_input(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"tmp": tmp_path, "run": log(tmp_path / "run")}
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "empty.log").touch()
    (tmp_path / "folder").mkdir()
    log(tmp_path / "several", "a.log")
    log(tmp_path / "several", "b.log")
    assert report(*(argument.format(**known) for argument in arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert (tmp_path / "old.html").read_text() == "old"


def test_a_checkpoint_that_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = log(tmp_path / "run")
    (run / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    assert report(run, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["versions"] is None
    assert found["notes"][0].startswith("The versions are not known: ")
