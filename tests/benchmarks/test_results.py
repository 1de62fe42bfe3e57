"""``benchmarks/results.py`` as a program, with tiny models on a few sentences, and the reading of its numbers."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results_page import wrapped
from results_stability import all_finite, diverged, shown_updates
from results_training import read_scores

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

TINY = [
    "--part", "comparison", "stability",
    "--merges=60", "--heads=2", "--layers=1", "--width=16", "--updates=8", "--warm-up=4", "--max-tokens=200",
    "--deep-layers=3", "--deep-width=16", "--deep-updates=30", "--deep-warm-up=20", "--deep-max-tokens=200",
]  # fmt: skip

#: One worker for all tests here, so that the program runs once.
pytestmark = pytest.mark.xdist_group("results")


@pytest.fixture(scope="module")
def run_program(run_benchmark: RunBenchmark) -> RunBenchmark:
    """``run_program(corpus, work, *options)``"""

    def run(corpus: Path, work: Path, *options: str) -> subprocess.CompletedProcess[str]:
        given = (f"--corpus={corpus}", f"--work={work}", f"--output={work / 'page.md'}")
        return run_benchmark("results.py", *given, *options)

    return run


@pytest.fixture(scope="module")
def work(run_program: RunBenchmark, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a whole run."""
    folder = tmp_path_factory.mktemp("results") / "work"
    done = run_program(corpus, folder, *TINY)
    assert done.returncode == 0, done.stderr
    return folder


def test_page_has_both_parts(work: Path) -> None:
    page = (work / "page.md").read_text(encoding="utf-8")
    assert "### Compared with stock fairseq" in page
    assert "### 3 + 3 layers" in page
    assert "100 pairs to train, 9 to validate, 10 to test" in page
    numbers = json.loads((work / "comparison.json").read_text(encoding="utf-8"))
    for name in ("stock", "lstm", "rnn"):
        run, scored = numbers["runs"][name], numbers["scores"]["systems"][name]
        assert list(run["valid"]) == ["2", "4", "6", "8"]
        assert f"| {run['parameters']:,} | {run['valid']['8']['loss']:.3f} |" in page
        assert 0 <= float(scored["BLEU"]["score"]) <= 100
        assert (scored["BLEU"]["p"] == "") == (name == "stock")
    deep = json.loads((work / "stability.json").read_text(encoding="utf-8"))
    for name in ("fp32", "bf16"):
        assert list(deep["runs"][name]["train"]) == ["10", "20", "30"]
        assert all_finite(deep["runs"][name])


def test_page_names_no_folder_of_this_machine(work: Path) -> None:
    page = (work / "page.md").read_text(encoding="utf-8")
    assert not re.search(r"(^|[\s`=])/\w", page)
    assert str(work) not in page
    assert "\"$CORPORA\"/'made up'/train.en > train.en" in page


def test_finished_results_are_not_repeated(run_program: RunBenchmark, corpus: Path, work: Path) -> None:
    before = (work / "page.md").read_text(encoding="utf-8")
    (work / "page.md").unlink()
    done = run_program(corpus, work, *TINY)
    assert done.returncode == 0, done.stderr
    assert "$ " not in done.stderr
    assert (work / "page.md").read_text(encoding="utf-8") == before


def test_folder_of_other_settings_is_refused(run_program: RunBenchmark, corpus: Path, work: Path) -> None:
    done = run_program(corpus, work, *TINY, "--updates=9", "--part=comparison")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "updates 8, not 9; give another folder" in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--corpus=missing"], "--corpus missing is no folder"), (["--source=fr"], "--source fr is none of")],
)
def test_bad_input_ends_in_one_sentence(
    run_program: RunBenchmark, corpus: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    done = run_program(corpus, tmp_path, *options)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def logged(*losses: float) -> dict[str, Any]:
    return {"train": {str(10 * number): {"loss": loss, "gnorm": 1.0} for number, loss in enumerate(losses, start=1)}}


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((9.0, 8.0, 7.0), False),
        ((9.0, 8.0, 8.0), False),
        ((9.0, 8.0, 8.1), True),
        ((9.0, math.nan, 7.0), True),
        ((9.0, 8.0), True),
        ((), True),
    ],
    ids=["falls", "stays", "rises", "not a number", "stopped early", "nothing"],
)
def test_verdict(losses: tuple[float, ...], expected: bool) -> None:
    assert diverged(logged(*losses), updates=30, warm_up=20) is expected


def test_shown_updates() -> None:
    assert shown_updates(300) == [10, 50, 100, 150, 200, 250, 300]
    assert shown_updates(30) == [10, 30]


def test_wrapped_command_is_the_same_command() -> None:
    command = "fairseq-train data-bin --adam-betas '(0.9, 0.98)' " + "--option value " * 30 + "> 'a file'"
    lines = list(wrapped(command))
    assert max(map(len, lines)) <= 120
    assert "'(0.9, 0.98)'" in "".join(lines)
    assert " ".join("\n".join(lines).replace("\\\n", "").split()) == command


def test_read_scores() -> None:
    table = """
    │          System │  BLEU (μ ± 95% CI)  │  chrF2 (μ ± 95% CI)  │
    │ Baseline: a.hyp │  94.9 (94.9 ± 1.3)  │  97.3 (97.3 ± 0.7)   │
    │           b.hyp │  86.2 (86.3 ± 2.2)  │  92.8 (92.9 ± 1.2)   │
    │                 │    (p = 0.0010)*    │    (p = 0.2010)      │
 - BLEU       nrefs:1|bs:1000
 - chrF2      nrefs:1|bs:1000|nc:6
"""
    scores = read_scores(table, ["a", "b"])
    assert scores["systems"]["a"]["BLEU"] == {"score": "94.9", "interval": "94.9 ± 1.3", "p": ""}
    assert scores["systems"]["b"]["BLEU"] == {"score": "86.2", "interval": "86.3 ± 2.2", "p": "0.0010"}
    assert scores["systems"]["b"]["chrF2"]["p"] == "0.2010"
    assert scores["signatures"] == {"BLEU": "nrefs:1|bs:1000", "chrF2": "nrefs:1|bs:1000|nc:6"}
