"""Multi30k from the first command to translations of raw text: baseline and model, two seeds, and our own commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from recipe_runs import Work, lines, small

from fairseq_depthwise.reports.training_log import read_run

pytestmark = pytest.mark.xdist_group("recipes")

#: Enough for translations that differ from each other.
TRAINING = ["--warmup-updates=20", "--max-epoch=6", "--save-interval-updates=15", "--lr=0.01", "--dropout=0"]
TEST = "test_2016_flickr"
#: How the recipe's evaluation searches.
SEARCH = ("--beam", "5", "--lenpen", "1")


@pytest.fixture(scope="module")
def trained(prepared: Callable[[str], Work]) -> Work:
    """The baseline with seed 1, and a depth-wise LSTM with seeds 1 and 2."""
    work = prepared("multi30k")
    ffn = ["--encoder-ffn-embed-dim=64", "--decoder-ffn-embed-dim=64"]
    work.train("transformer", *small(32), *ffn, *TRAINING)
    for seed in (1, 2):
        work.train("depthwise_lstm", *small(32), "--depthwise-hidden-dim=64", *TRAINING, SEED=seed)
    work.run("evaluate", "transformer")
    return work


@pytest.mark.long
def test_baseline_and_seeds_in_one_table(trained: Work) -> None:
    printed = trained.run("evaluate", "depthwise_lstm").stdout
    path = trained.folder / "systems" / f"depthwise_lstm.{TEST}.scores.json"
    scores = json.loads(path.read_text())["metrics"]
    assert list(scores) == ["sacrebleu", "tokenized-lc", "chrf"]
    for metric, runs in scores.items():
        assert [run["seed"] for run in runs] == ["1", "2"]
        # The baseline has been trained with seed 1 only.
        assert runs[0]["baseline"] == "transformer"
        assert 0 < runs[0]["p"] <= 1
        assert "baseline" not in runs[1]
        mean = sum(run["score"] for run in runs) / 2
        # A table for each test set, that of TEST first.
        row, *_ = [line.split() for line in printed.split("\n") if line.split()[:2] == [metric, "mean"]]
        assert row[2] == f"{mean:.2f}"
        assert row[3] == "±"


@pytest.mark.long
def test_the_log_can_be_reported(trained: Work) -> None:
    run = read_run(str(trained.folder / "systems" / "transformer"))
    assert run.updates > 0
    assert run.get_series("loss", validation=True)["values"]


@pytest.mark.long
def test_raw_text_without_options(trained: Work, forked_python: object) -> None:
    """The checkpoint knows its tokenizer and subwords; the translations are those that were scored."""
    folder = trained.folder / "systems" / "transformer"
    scored = lines(folder / "evaluation" / f"{TEST}.txt")
    assert len(set(scored)) > 1
    program = [trained.environment["PYTHON"], "-m", "fairseq_depthwise", "translate"]
    command = [*program, str(folder / "average.pt"), *SEARCH]
    raw = (trained.folder / "text" / f"test.{TEST}.raw.en").read_text()
    printed = subprocess.run(command, input=raw, capture_output=True, text=True, check=True, timeout=120).stdout
    assert printed.split("\n")[:-1] == scored
