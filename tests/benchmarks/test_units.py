"""``benchmarks/units.py`` as a program, with tiny models. How fast they are is not asked here."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from units_page import page

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

TINY = [
    "--device=cpu", "--units=1,2,4", "--rounds=2", "--warm-up=1", "--batches=2", "--vocabulary=64",
    "--train-tokens=100", "--decode-batches=3",
    "--model-overrides=--encoder-embed-dim 32 --encoder-attention-heads 2 --decoder-embed-dim 32 --encoder-layers 2 "
    "--decoder-layers 2 --decoder-attention-heads 2 --encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64",
]  # fmt: skip

pytestmark = pytest.mark.xdist_group("units benchmark")


@pytest.fixture(scope="module")
def measured(run_benchmark: RunBenchmark, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The page and the numbers of a run of the program."""
    folder = tmp_path_factory.mktemp("units")
    done = run_benchmark("units.py", *TINY, f"--output={folder / 'page.md'}", f"--json={folder / 'numbers.json'}")
    assert done.returncode == 0, done.stderr
    text = (folder / "page.md").read_text(encoding="utf-8")
    assert text in done.stdout + "\n"
    return text, json.loads((folder / "numbers.json").read_text(encoding="utf-8"))


def test_every_comparison_is_measured(measured: tuple[str, dict[str, Any]]) -> None:
    compared = [list(result["seconds"]) for result in measured[1]["results"]]
    assert compared == [
        ["stock", "units 1"],
        ["loop units 2", "units 2", "units 1"],
        ["loop units 4", "units 4", "units 1"],
        ["loop biased, sequential units 4", "biased, sequential units 4", "units 1"],
        ["stock", "units 1", "units 2", "units 4", "encoder"],
    ]
    for result in measured[1]["results"]:
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in result["seconds"].values())


def test_page(measured: tuple[str, dict[str, Any]]) -> None:
    text = measured[0]
    assert text.startswith("<!-- units -->\n\n# The Multi-Unit Transformer")
    assert text.count("\n| fp32 |") == 4 + 5
    assert not re.search(r"\bnan\b|(^|[\s`])/\w", text)


def test_verdicts_by_hand() -> None:
    """Ratios are of neighbors; the bar of n units on a CPU follows from the encoder's share."""
    setup = dict.fromkeys(("command", "machine", "versions", "options"), "x")
    setup |= {"device": "cpu", "rounds": 2, "beam": 4, "threads": 1, "vocabulary": 9, "tokens": [5], "parameters": {}}
    training = {"loop units 4": [3.0, 9.0], "units 4": [2.0, 6.0], "units 1": [1.0, 3.0]}
    decoding = {"stock": [11.0, 11.0], "units 1": [10.0, 10.0], "units 4": [12.0, 12.0], "encoder": [1.0, 1.0]}
    common = {"precision": "fp32", "amounts": [10, 10], "memory": {}}
    text = page(
        setup,
        [
            {"part": "training", "seconds": training, **common},
            {"part": "decoding", "batch": 30, "seconds": decoding, **common},
        ],
    )
    assert "| 1.500 | 1.500 - 1.500 | 1 | yes | 2.00 |" in text
    assert "| units 1 | 1.00 | 1.100 | 1.000 | 1.100 - 1.100 | 1 | yes |" in text
    # 1 / (1 + 3 * 0.1)
    assert "| units 4 | 0.83 | 0.917 | 0.833 | 0.833 - 0.833 | 0.769 | yes |" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--units=9",), ["--units", "9 is more than the 8"]),
        (("--parts=nothing",), ["--parts", "'nothing'", "training, decoding"]),
        (("--device=cpu", "--model-overrides=--encoder-layers none"), ["--encoder-layers"]),
    ],
)
def test_bad_option_gets_one_sentence(run_benchmark: RunBenchmark, options: tuple[str, ...], words: list[str]) -> None:
    done = run_benchmark("units.py", *options)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr.splitlines()[-1] for word in words)
