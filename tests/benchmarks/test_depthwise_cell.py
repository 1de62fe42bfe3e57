"""``benchmarks/depthwise_cell.py`` with a tiny cell."""

from __future__ import annotations

import json
from pathlib import Path

import depthwise_cell
import pytest
import torch

TINY = ["--device=cpu", "--precisions=fp32", "--rounds=2", "--warm-up=1", "--width=16", "--hidden=32", "--tokens=50"]


def test_a_kernel_beside_the_plain_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, numbers = tmp_path / "page.md", tmp_path / "numbers.json"
    assert depthwise_cell.main([*TINY, "--kernels=eager", f"--output={page}", f"--json={numbers}"]) == 0
    (result,) = json.loads(numbers.read_text(encoding="utf-8"))["results"]
    assert {name: len(seconds) for name, seconds in result["seconds"].items()} == {"plain": 2, "eager": 2}
    assert capsys.readouterr().out == page.read_text(encoding="utf-8")


def test_verdicts_by_hand() -> None:
    setup = dict.fromkeys(("command", "machine", "threads", "versions", "width", "hidden", "tokens", "rounds"), "x")
    result = {
        "precision": "bf16", "passes": 20, "missing": ["compile"],
        "seconds": {"plain": [2.0, 4.0, 3.0], "triton": [1.0, 4.0, 2.0]},
        "memory": {"plain": 10 << 20, "triton": 8 << 20},
    }  # fmt: skip
    text = depthwise_cell.page({**setup, "device": "cuda"}, [result])
    row = "| bf16 | triton | 100.00 | 150.00 | 1.500 | 1.250 - 1.750 | 1.5: met | 8 | 10 | 0.80 | 0.7: **not met** |"
    assert row in text
    assert "| bf16 | compile | does not work here |" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--device=cuda"], "PyTorch finds no GPU here"), ([*TINY, "--hidden=7"], "--hidden 7 is odd")],
)
def test_one_sentence(
    options: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert depthwise_cell.main(options) == 1
    assert sentence in capsys.readouterr().err
