"""Quality and time of models in all ways of decoding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import quality

EARLIER = Path(__file__).parents[1] / "earlier"


def test_models_in_all_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for slow in ("compiled", "int8"):
        monkeypatch.delitem(quality.WAYS, slow)
    monkeypatch.setitem(quality.WAYS, "bf16", {"precision": "bf16", "compile": False})
    monkeypatch.setattr(quality, "CTRANSLATE2_TYPES", ())  # CTranslate2's need not be installed
    models = [f"{name}={EARLIER}/{name}/checkpoint_last.pt" for name in ("transformer", "sdt")]
    test = [str(EARLIER / "text" / f"test.{language}") for language in ("src", "tgt")]
    given = ["--data", str(EARLIER / "data-bin"), "--test", *test, "--rounds", "2", "--records", str(tmp_path)]
    given += models
    monkeypatch.setattr("sys.argv", ["quality.py", *given])
    quality.main()
    rows = json.loads((tmp_path / "quality_cpu.json").read_text())["rows"]
    of_models = [("transformer", "float32"), ("sdt", "float32"), ("sdt", "bf16")]
    assert [(row["model"], row["way"], row["batch"]) for row in rows] == [
        (*of, batch) for batch in (32, 1) for of in of_models
    ]
    for row in rows:
        assert len(row["milliseconds"]) == 2
        assert min(row["milliseconds"]) > 0
        assert 0 <= row["bleu"] <= 100
    assert all(one["bleu"] == other["bleu"] for one, other in zip(rows[:3], rows[3:], strict=True))
