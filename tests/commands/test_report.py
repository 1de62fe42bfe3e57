"""``fairseq-depthwise report``: a page and numbers from logs, and what is refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

LINE = "epoch 001:  {n} / 9 loss={loss}, ppl=4, wps=100, num_updates={n}, lr=0.1, wall={n}\n"
VALID = "epoch 001 | valid on 'valid' subset | loss 2.5 | ppl 5.66 | bleu 3.25 | num_updates 2\n"


def log(folder: Path, name: str = "train.log", loss: str = "3") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(LINE.format(n=1, loss=loss) + LINE.format(n=2, loss="nan") + VALID, encoding="utf-8")
    return folder


def test_a_page_and_its_table(tmp_path: Path, printed: Callable[..., str]) -> None:
    run, page = log(tmp_path / "first"), tmp_path / "page.html"
    rows = [line.split("  ") for line in printed("report", run / "train.log", "--output", page).splitlines()]
    assert rows[0][-1].strip() == "first"
    assert [row[-1].strip() for row in rows if "BLEU" in row[-2]] == ["3.25 after update 2"]
    content = page.read_text(encoding="utf-8")
    assert content.startswith("<!DOCTYPE html>")
    assert "3.25 after update 2" in content
    page.write_text("before")
    printed("report", run, "--output", page, "--force")
    assert page.read_text(encoding="utf-8") == content


def test_numbers(tmp_path: Path, document: Callable[..., Any]) -> None:
    run = log(tmp_path / "first")
    torch.save({"model": {}, "cfg": {}, "extra_state": {"versions": {"torch": "2"}}}, run / "checkpoint_last.pt")
    (first,) = document("report", run)["runs"]
    assert first["name"] == "first"
    assert first["series"]["train_inner"]["loss"] == {"updates": [1, 2], "seconds": [1, 2], "values": [3, None]}
    assert first["summary"]["loss"] == {"value": 2.5, "update": 2}
    assert first["summary"]["not_finite"] == {"loss": 1}
    assert first["versions"] == {"torch": "2"}
    assert not list(tmp_path.glob("*.html"))


def test_runs_of_one_name_are_distinguished(tmp_path: Path, document: Callable[..., Any]) -> None:
    folders = [log(tmp_path / name, "x.log") for name in ("a", "b")]
    runs = document("report", folders[0] / "x.log", folders[1], folders[1] / "x.log")["runs"]
    assert len({run["name"] for run in runs}) == 3
    assert runs[0]["name"] == "a/x.log"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("{run}", "report needs --output"),
        ("{run} --output {tmp}/page.pdf", "--output {tmp}/page.pdf"),
        ("{run} --output {tmp}/no/page.html", "--output {tmp}/no/page.html: the folder {tmp}/no does"),
        ("{tmp}/none --json", "{tmp}/none"),
        ("'' --json", "the name of a run is empty"),
        ("{run} {run}/ --json", "{run} is given twice"),
        ("{tmp}/old.html --json", "{tmp}/old.html is not a log"),
        ("{tmp}/empty.log --json", "{tmp}/empty.log is empty"),
        ("{tmp}/several --json", "{tmp}/several holds a.log, b.log"),
        ("{tmp}/folder --json", "{tmp}/folder holds no training"),
    ],
)
def test_refused(words: str, named: str, tmp_path: Path, refusal: Callable[..., str]) -> None:
    known = {"tmp": tmp_path, "run": log(tmp_path / "run")}
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "empty.log").touch()
    (tmp_path / "folder").mkdir()
    log(tmp_path / "several", "a.log")
    log(tmp_path / "several", "b.log")
    assert refusal("report", *shlex.split(words.format(**known))).startswith(named.format(**known))


def test_a_checkpoint_that_cannot_be_read_is_noted(tmp_path: Path, document: Callable[..., Any]) -> None:
    run = log(tmp_path / "run")
    (run / "checkpoint_last.pt").write_bytes(b"no checkpoint")
    (found,) = document("report", run)["runs"]
    assert found["versions"] is None
    assert "versions" in found["notes"][0]
