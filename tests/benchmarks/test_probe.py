"""The benchmark of the probe measures what it says, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import probe
import pytest

TINY = [
    "--device=cpu", "--rounds=2", "--batches=1", "--tokens=60", "--vocabulary=40",
    "--model-overrides=--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2",
]  # fmt: skip


def test_every_model_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, numbers = tmp_path / "page.md", tmp_path / "numbers.json"
    page.write_text("<!-- units -->\n\nunits stay\n", encoding="utf-8")
    assert probe.main([*TINY, f"--output={page}", f"--json={numbers}"]) == 0
    found = json.loads(numbers.read_text(encoding="utf-8"))
    assert [result["name"] for result in found["results"]] == list(probe.SIDES_MEASURED)
    for result in found["results"]:
        assert (result["layers"], {len(seconds) for seconds in result["seconds"].values()}) == (3, {2})
        assert result["maps"] == (6 if "depthwise" in result["name"] else 3)  # two readings of a pair
    text = page.read_text(encoding="utf-8")
    assert "units stay" in text
    assert capsys.readouterr().out.strip() in text


def test_the_bar_is_of_the_median_of_the_ratios() -> None:
    setup = dict.fromkeys(
        ("command", "rounds", "machine", "device", "threads", "versions", "vocabulary", "options"), ""
    )
    result = {
        "name": "model", "layers": 3, "maps": 3, "solving": 0.5,
        "seconds": {"forward pass": [1.0, 2.0, 1.0], "fit": [2.5, 3.0, 2.5]},
    }  # fmt: skip
    row = probe.page({**setup, "tokens": [5]}, [result]).splitlines()[-1]
    assert row == "| model | 3 | 1.000 | 2.500 | 2.50 (2.00 - 2.50) | 2.0: not met | 0.50 for 3 maps |"


def test_a_wrong_option_of_a_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([*TINY[:-1], "--model-overrides=--no-such-option 7"]) == 1
    assert "fairseq refuses the options" in capsys.readouterr().err
