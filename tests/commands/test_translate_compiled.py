"""``translate --compile``: compiled once, the same translations, and the ordinary way where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli
from fairseq_depthwise.backends import compiled
from fairseq_depthwise.backends.graph_cache import VARIABLE

LINES = ["w0 w1", "", "w3 w1 w2 w7 w7 w6", "w5", "w2 zz w2", "w6 w1 w0 w0 w4 w5 w5 w1"]

SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}

#: Settings that take a minute: without the trials of products, and the code between them not optimized.
QUICK = {"freezing": True, "aot_inductor.compile_wrapper_opt_level": "O0"}

Translate = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def translate(
    cache: Path, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Translate:
    """``translate(checkpoint, *options)``: the lines on stdout, and those on stderr."""
    monkeypatch.setenv(VARIABLE, str(cache))
    monkeypatch.setattr(compiled, "_SETTINGS", QUICK)
    monkeypatch.setitem(compiled._PARTS, "step_few", {})
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")

    def run(checkpoint: str, *options: str) -> tuple[list[str], list[str]]:
        capsys.readouterr()
        given = ["translate", checkpoint, str(text), "--data", data, "--cpu", "--tokenized", "--json", *options]
        assert cli.main(given) == 0
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err.splitlines()

    return run


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (None, "/nowhere/g++"))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")
def test_it_is_compiled_once_and_translates_the_same(
    translate: Translate, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = checkpoint_of(tmp_path, "depthwise_lstm_transformer", **SMALL)
    for number, search in enumerate(("--beam 1 --max-len-b 8", "--beam 4 --nbest 3 --max-len-b 40")):
        if number == 1:  # compiled already: there need not even be a compiler
            without_compiler(monkeypatch)
        expected, _ = translate(checkpoint, *search.split(), "--no-compile")
        found, said = translate(checkpoint, *search.split(), "--compile")
        for one, other in zip(map(json.loads, found), map(json.loads, expected), strict=True):
            assert one["translation"] == other["translation"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)
        assert any("compiling" in sentence for sentence in said) == (number == 0), said
    (folder,) = cache.glob("*/compiled/*")
    assert sorted(os.listdir(folder)) == ["encoder.pt2", "made_by.json", "step_few.pt2", "step_many.pt2"]
    # What is compiled is used without being asked for.
    used = []
    loaded = compiled._loaded
    monkeypatch.setattr(compiled, "_loaded", lambda folder: used.append(folder) or loaded(folder))
    assert translate(checkpoint, *search.split())[0] == found
    assert used == [folder]
    assert translate(checkpoint, *search.split(), "--no-compile")[0] == expected
    assert translate(checkpoint, "--sampling", "--beam", "1", "--max-len-b", "3")[0]
    assert used == [folder]
    # What is damaged is named where it was asked for, and the model translates without.
    (folder / "encoder.pt2").write_bytes(b"damaged")
    found, said = translate(checkpoint, *search.split(), "--compile")
    assert found == expected
    assert [sentence for sentence in said if str(folder) in sentence]


@pytest.mark.parametrize("kind", ["transformer", "sdt_transformer"])
def test_what_cannot_be_compiled_translates_as_it_is(
    kind: str, translate: Translate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = checkpoint_of(tmp_path, kind)
    without_compiler(monkeypatch)
    expected, _ = translate(checkpoint, "--beam", "2")
    found, said = translate(checkpoint, "--beam", "2", "--compile")
    assert found == expected
    reason = "architecture TransformerModel" if kind == "transformer" else "compiler"
    (sentence,) = [sentence for sentence in said if sentence.startswith("not compiled")]
    assert reason in sentence
