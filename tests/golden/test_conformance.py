"""Every way of translating gives the same translations: ``translate`` as it is, compiled, in int8, and exported.

The models are those of ``tests/earlier``: 150 updates, with the translations and scores of their release.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_depthwise import cli
from fairseq_depthwise.backends import compiled
from fairseq_depthwise.backends.graph_cache import VARIABLE

EARLIER = Path(__file__).parents[1] / "earlier"
OURS = ("sdt", "depthwise_lstm", "depthwise_lstm_two_cells", "mute_sequential")

#: Settings of the compiler that take a minute: no trials of products, and the code between them not optimized.
QUICK = {"freezing": True, "aot_inductor.compile_wrapper_opt_level": "O0"}

#: Way -> options of ``export``, or None where it translates from the checkpoint; options of ``translate``.
WAYS: dict[str, tuple[list[str] | None, list[str]]] = {
    "eager": (None, []),
    "line by line": (None, ["--batch-size", "1"]),
    "exported": ([], []),
    "exported int8": (["--int8"], []),
    "int8": (None, ["--int8"]),
    "compiled": (None, ["--compile"]),
}

#: Of translations in int8 so many are those of float32 at least, with scores that are not further off.
SAME_IN_INT8, TOLERANCE_OF_INT8 = 0.7, 0.1


def cases() -> list[Any]:
    """Every system and way; of what takes a minute only the first system is not marked long."""
    everything = [(system, way) for way in WAYS for system in OURS]
    everything += [(system, way) for way in ("eager", "line by line") for system in ("transformer", "linearized")]
    slow = [
        pair
        for pair in everything
        if pair[1] == "compiled" or (pair[1] in ("exported", "exported int8", "int8") and pair[0] != "sdt")
    ]
    return [pytest.param(*pair, marks=pytest.mark.long if pair in slow else ()) for pair in everything]


@pytest.mark.parametrize(("system", "way"), cases())
def test_every_way_translates_alike(
    system: str, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "exported" in way or "int8" in way:
        pytest.importorskip("onnxruntime")
    if way == "compiled" and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler here")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_SETTINGS", QUICK)
    monkeypatch.setitem(compiled._PARTS, "step_few", {})
    export, options = WAYS[way]
    model, data = str(EARLIER / system / "checkpoint_last.pt"), ["--data", str(EARLIER / "data-bin")]
    if export is not None:
        assert cli.main(["export", model, str(tmp_path / "exported"), *data, *export]) == 0
        model, data = str(tmp_path / "exported"), []
    capsys.readouterr()
    given = [model, str(EARLIER / "text" / "test.src"), *data, "--cpu", "--json", "--beam", "3", "--lenpen", "1"]
    assert cli.main(["translate", *given, *options]) == 0
    captured = capsys.readouterr()
    assert "not compiled" not in captured.err
    found = [json.loads(line) for line in captured.out.splitlines()]
    recorded = json.loads((EARLIER / system / "expected.json").read_text(encoding="utf-8"))["hypotheses"]
    expected = [line.split(" ", 1) for line in recorded]
    pairs = [((line["translation"], line["score"]), (text, float(score))) for line, (score, text) in zip(
        found, expected, strict=True)]  # fmt: skip
    same = [(one[1], other[1]) for one, other in pairs if one[0] == other[0]]
    assert len(same) >= len(pairs) * (SAME_IN_INT8 if "int8" in way else 1)
    assert [one for one, _ in same] == pytest.approx(
        [other for _, other in same], abs=TOLERANCE_OF_INT8 if "int8" in way else 1e-3
    )
