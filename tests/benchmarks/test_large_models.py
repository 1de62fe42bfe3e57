"""``benchmarks/large_models.py`` as a program, with tiny models. How large and fast they are is not asked here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import large_models
import pytest
from large_models_page import MEASURES, page

from fairseq_compat import UserError

RunBenchmark = Callable[..., subprocess.CompletedProcess[str]]

SIZES = " ".join(
    f"--{side}-{size}"
    for side in ("encoder", "decoder")
    for size in ("embed-dim=16", "attention-heads=2", "ffn-embed-dim=24", "layers=6")
)

SETUP = {"machine": "a machine", "threads": 1, "versions": "Python 3", "variables": ""}


@pytest.fixture
def run_program(run_benchmark: RunBenchmark) -> RunBenchmark:
    small = ("--vocabulary=64", "--train-tokens=60", f"--model-overrides={SIZES}")
    # The peak of a fork begins with what its server has in memory.
    return partial(run_benchmark, "large_models.py", *small, forked=False)


def case(model: str, measure: str, **numbers: Any) -> dict[str, Any]:
    return {"device": "cpu", "model": model, "measure": measure, "setup": SETUP, **numbers}


def test_cases_are_measured_and_others_stay_in_the_record(run_program: RunBenchmark, tmp_path: Path) -> None:
    record, output = tmp_path / "record.json", tmp_path / "page.md"
    old = case("big", "fp32", skipped="it needs more than the 1.0 GiB that cpu has free")
    record.write_text(json.dumps({"cases": [old, case("base", "fused", skipped="old")]}))
    done = run_program("--models=base", "--measures=fp32,fused", f"--record={record}", f"--output={output}")
    assert done.returncode == 0, done.stderr
    cases = json.loads(record.read_text())["cases"]
    assert [(one["model"], one["measure"]) for one in cases] == [("big", "fp32"), ("base", "fp32"), ("base", "fused")]
    for one in cases[1:]:
        assert one["peak"] > 2**20
        assert one["seconds"] > 0
        assert one["parameters"] == cases[1]["parameters"] > 10_000
    text = output.read_text()
    assert text in done.stdout + "\n"
    assert "| base | " in text
    assert "big, fp32 was skipped: it needs more than the 1.0 GiB that cpu has free." in text


def test_a_missing_device_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert large_models.main(["--device=cuda"]) == 0
    assert capsys.readouterr().err == ("large_models: skipped: PyTorch finds no GPU here, which --device cuda needs\n")


def test_too_little_memory_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def measure(*_: Any) -> dict[str, Any]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(large_models, "measure_here", measure)
    monkeypatch.setattr(large_models, "available_memory", lambda: 4 * 2**30)
    large_models.measure_as_child("base", "fp32", large_models.parse_options([]))
    found = json.loads(capsys.readouterr().out)
    assert found == {"skipped": "it needs more than the 3.0 GiB that cpu has free"}


def test_a_wrong_option_ends_the_program(run_program: RunBenchmark) -> None:
    done = run_program("--models=base", "--measures=fp32", "--model-overrides=--encoder-layers=5", forked=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("large_models: error: base, fp32: ")


def test_another_file_is_not_taken_for_a_record(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    path.write_text('{"results": []}')
    with pytest.raises(UserError, match="is not what this program wrote"):
        large_models.read_record(path)


def test_rows_are_in_the_order_of_models_and_measures() -> None:
    numbers = {"peak": 3 * 2**30, "parameters": 1000, "tokens": 60, "seconds": 1.25}
    text = page([
        case("big", "fp32", **numbers | {"peak": 6 * 2**30}),
        *(case("base", measure, **numbers | {"peak": number * 2**30}) for number, measure in enumerate(MEASURES, 4)),
    ][::-1])  # fmt: skip
    rows = [line for line in text.splitlines() if line.startswith(("| base", "| big"))]
    assert rows == [
        "| base | 1,000 | float32 | 60 | 4.00 | 1.00 | 1.25 |",
        "| base | 1,000 | `--bf16` | 60 | 5.00 | 1.25 | 1.25 |",
        "| base | 1,000 | + `--checkpoint-activations` | 60 | 6.00 | 1.50 | 1.25 |",
        "| base | 1,000 | + `--optimizer fused_adam` | 60 | 7.00 | 1.75 | 1.25 |",
        "| big | 1,000 | float32 | 60 | 6.00 | 1.00 | 1.25 |",
    ]
