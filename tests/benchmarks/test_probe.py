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
    assert probe.main([*TINY, f"--records={tmp_path}"]) == 0
    record = json.loads((tmp_path / "probe.json").read_text(encoding="utf-8"))
    assert [result["name"] for result in record["results"]] == list(probe.MODELS)
    printed = capsys.readouterr().out
    for result in record["results"]:
        assert (result["layers"], {len(seconds) for seconds in result["seconds"].values()}) == (3, {2})
        assert result["fits"] == (6 if "depthwise" in result["name"] else 3)  # two readings of a pair
        assert f"| {result['name']} | 3 |" in printed
