"""``benchmarks/depthwise.py`` as a program, with tiny models. How fast they are is not asked here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "depthwise.py"

TINY = [
    "--device=cpu", "--precisions=fp32", "--rounds=2", "--warm-up=1", "--batches=2", "--vocabulary=64", "--layers=2",
    "--train-tokens=100", "--decode-batches=3", "--cell", "--kernels=eager,triton",
    "--model-overrides=--encoder-embed-dim 32 --encoder-attention-heads 2 --decoder-embed-dim 32 "
    "--decoder-attention-heads 2",
    "--stock-overrides=--encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64",
    "--ours-overrides=--depthwise-hidden-dim 64",
]  # fmt: skip

#: One worker for all tests here, so that the program runs once.
pytestmark = pytest.mark.xdist_group("depthwise benchmark")


def run_program(*options: str) -> subprocess.CompletedProcess[str]:
    # Triton's interpreter would make its kernel possible on the CPU.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, str(PROGRAM), *options],
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, dict[str, Any]]:
    """What a run of the program printed, its page, and its numbers."""
    folder = tmp_path_factory.mktemp("depthwise")
    done = run_program(*TINY, f"--output={folder / 'page.md'}", f"--json={folder / 'numbers.json'}")
    assert done.returncode == 0, done.stderr
    page = (folder / "page.md").read_text(encoding="utf-8")
    return done.stdout, page, json.loads((folder / "numbers.json").read_text(encoding="utf-8"))


def columns(page: str, title: str) -> dict[str, str]:
    """The one line of the table under a title: column -> cell; of two columns with one name, the first."""
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    head, _, line = (
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*", section, re.M)
    )
    return dict(reversed(list(zip(head, line, strict=True))))


class TestTables:
    def test_what_is_printed_is_what_is_written(self, measured: tuple[str, str, dict[str, Any]]) -> None:
        printed, page, _ = measured
        assert printed == page

    @pytest.mark.parametrize("title", ["Training step", "Decoding", "The cell alone"])
    def test_ratio_lies_between_its_quartiles(self, title: str, measured: tuple[str, str, dict[str, Any]]) -> None:
        row = columns(measured[1], title)
        low, high = (float(number) for number in row["quartiles"].split(" - "))
        assert 0 < low <= float(row["ratio"]) <= high < float("inf")

    @pytest.mark.parametrize(
        ("title", "unit", "bar"), [("Training step", "tokens/s", "0.8"), ("Decoding", "sentences/s", "1.3")]
    )
    def test_sides_rates_bar_and_memory(
        self, title: str, unit: str, bar: str, measured: tuple[str, str, dict[str, Any]]
    ) -> None:
        row = columns(measured[1], title)
        for side in ("stock", "our"):
            assert float(row[f"{side} {unit}"]) > 0
            assert float(row[f"{side} peak MiB"]) >= 0
        assert row["bar"] == bar
        assert row["met"] == ("yes" if float(row["ratio"]) >= float(bar) else "**no**")

    def test_kernel_that_is_not_possible_is_said_and_not_measured(
        self, measured: tuple[str, str, dict[str, Any]]
    ) -> None:
        _, page, numbers = measured
        assert "the cell's kernel triton was not measured" in page
        assert [result["case"] for result in numbers["results"] if result["part"] == "cell"] == ["eager"]


class TestNumbers:
    def test_both_sides_in_every_round(self, measured: tuple[str, str, dict[str, Any]]) -> None:
        for result in measured[2]["results"]:
            assert [len(seconds) for seconds in result["seconds"].values()] == [2, 2]
            assert len(result["amounts"]) == 2

    def test_decoders_do_the_same_steps(self, measured: tuple[str, str, dict[str, Any]]) -> None:
        numbers = measured[2]
        (decoding,) = (result for result in numbers["results"] if result["part"] == "decoding")
        assert decoding["steps"]["stock"] == decoding["steps"]["ours"]
        assert "batches as wide as 19, 36" in " ".join(numbers["setup"]["batches"])
        assert decoding["steps"]["ours"] == [20, 37]  # one more than the widths, for the end of the sentence

    def test_layers_reach_both_sides(self, measured: tuple[str, str, dict[str, Any]]) -> None:
        for side in measured[2]["setup"]["sides"].values():
            assert side["options"][:4] == ["--encoder-layers", "2", "--decoder-layers", "2"]
            assert 0 < side["parameters"] < 100_000


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--rounds=1", ["--rounds", "'1'", "at least 2"]),
        ("--output=/no/such/folder/page.md", ["--output", "/no/such/folder/page.md", "does not exist"]),
        ("--model-overrides=--no-such-option", ["transformer_wmt_en_de", "--no-such-option"]),
        ("--ours-overrides=--depthwise-hidden-dim 7", ["--depthwise-hidden-dim 7", "even"]),
    ],
)
def test_bad_option_gets_one_sentence(option: str, words: list[str]) -> None:
    done = run_program("--vocabulary=64", "--layers=1", option)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert "error: " in sentence
    assert all(word in sentence for word in words)
