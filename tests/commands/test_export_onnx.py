"""Exported folders in ONNX, and of either format in the place of a checkpoint: the model's own translations."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.kept_graphs import VARIABLE
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions
from fairseq_depthwise.serving.text_codec import TextOptions

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLE = Path(__file__).parents[2] / "examples" / "exported" / "translate_onnx.py"

LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "w5", "w2 zz w2", "w6 w1 w0 w0 w4 w5 w5 w1"]

LONGEST = 20


#: Translates with the example in a Python that cannot import torch, fairseq nor this package.
ALONE = """
import importlib.machinery, json, runpy, sys
example, folder, lines = json.load(sys.stdin)
sys.path.insert(0, example.rpartition("/")[0])
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "fairseq", "fairseq_depthwise", "fairseq_compat", "omegaconf", "hydra"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
translator = runpy.run_path(example)["ExportedTranslator"](folder)
print(json.dumps([[translator.translate(line, beam) for line in lines] for beam in (1, 4)]))
"""


def loaded(path: str, beam: int, *, data: str) -> LoadedTranslator:
    options = TranslatorOptions(BeamOptions(beam, 0.6, LONGEST), TextOptions(tokenized=True))
    return LoadedTranslator(path, data=data, options=options)


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


@pytest.fixture(scope="module")
def folder(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.pt``, and what it was exported to: ``onnx`` and ``int8``."""
    folder = tmp_path_factory.mktemp("models")
    checkpoint = checkpoint_of(folder, "sdt_transformer", "model.pt", encoder_layers=2, decoder_layers=1)
    for name, given in (("onnx", []), ("int8", ["--int8"])):
        words = ["export", checkpoint, str(folder / name), "--data", data, "--format", "onnx", *given]
        assert cli.main(words) == 0
        config = config_of(folder / name)
        config["search"]["max_length"] = LONGEST
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_translations_with_onnxruntime_alone_are_the_models(folder: Path, data: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{ALONE}"],
        input=json.dumps([str(EXAMPLE), str(folder / "onnx"), LINES]), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for beam, translations in zip((1, 4), json.loads(run.stdout), strict=True):
        expected = loaded(str(folder / "model.pt"), beam, data=data).translations(LINES)
        assert [text for _, text in translations] == [one.text for one in expected]
        scores = [one.hypotheses[0].score * math.log(2) for one in expected]
        assert [score for score, _ in translations] == pytest.approx(scores, abs=1e-4)
        assert len(set(scores)) == len(LINES)


def test_weights_in_int8_are_a_quarter_as_large(folder: Path) -> None:
    sizes = []
    for name in ("onnx", "int8"):
        model = onnx.load(folder / name / "decoder_step.onnx")
        kinds = [tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2]
        sizes.append((kinds.count(onnx.TensorProto.FLOAT), kinds.count(onnx.TensorProto.INT8)))
    (floats, none), (left, integers) = sizes
    assert none == 0
    assert integers >= 6
    assert left < floats
    # The table that embedding and output projection share: looked up in float32, multiplied in int8.
    model = onnx.load(folder / "int8" / "decoder_step.onnx")
    vocabulary = config_of(folder / "int8")["vocabulary"]["target"]
    kinds = {
        tensor.data_type for tensor in model.graph.initializer if vocabulary in tensor.dims and len(tensor.dims) == 2
    }
    assert kinds == {onnx.TensorProto.FLOAT, onnx.TensorProto.INT8}


def test_translate_in_int8_is_the_exported_folder(
    folder: Path, data: str, printed: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Made at the first use, and kept."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    search = [tmp_path / "text", "--beam", "3", "--max-len-b", str(LONGEST), "--tokenized", "--json"]
    expected = printed("translate", folder / "int8", *search)
    for made in (True, False):
        given = [folder / "model.pt", *search, "--data", data, "--cpu", "--int8"]
        assert cli.main(["translate", *map(str, given)]) == 0
        captured = capsys.readouterr()
        assert captured.out == expected
        assert ("quantizing" in captured.err) == made


@pytest.mark.parametrize("options", ["--data data-bin", "--int8"])
def test_options_of_checkpoints_are_refused(options: str, folder: Path, refusal: Callable[..., str]) -> None:
    assert options.split()[0] in refusal("translate", folder / "onnx", *options.split(), "--cpu")


@pytest.mark.parametrize(("file", "content"), [("config.json", b"{"), ("encoder.onnx", b""), ("dict.src.txt", None)])
def test_damaged_folders_are_one_sentence(
    file: str, content: bytes | None, folder: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    damaged = shutil.copytree(folder / "onnx", tmp_path / "exported")
    (damaged / file).unlink()
    if content is None:
        os.mkfifo(damaged / file)  # which is not read
    else:
        (damaged / file).write_bytes(content)
    assert file in refusal("translate", damaged, "--tokenized")


@pytest.mark.parametrize("change", ["Loop", "a domain", "a function", "garbage"])
def test_other_operators_are_refused_before_they_are_loaded(
    change: str, folder: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(folder / "onnx", tmp_path / "exported")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["functions"]["encoder"]["sha256"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model, add = onnx.load(folder / "encoder.onnx"), onnx.helper.make_node("Add", ["x", "x"], ["y"])
    if change == "Loop":
        body = onnx.helper.make_graph([add], "body", [], [])
        model.graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["z"], body=body))
    elif change == "a domain":
        model.graph.node.append(onnx.helper.make_node("Add", ["x", "x"], ["z"], domain="com.microsoft"))
    elif change == "a function":
        versions = [onnx.helper.make_opsetid("", 20)]
        model.functions.append(onnx.helper.make_function("", "Add", ["x"], ["y"], [add], versions))
    content = b"\xff" * 1000 if change == "garbage" else model.SerializeToString()
    (folder / "encoder.onnx").write_bytes(content)
    assert f"{folder}/encoder.onnx is damaged, or not what export writes" in refusal("translate", folder, "--tokenized")
    run = subprocess.run([sys.executable, EXAMPLE, folder], input="", capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert f"{folder}/encoder.onnx is damaged" in run.stderr


def test_without_onnx_the_extra_is_named(
    folder: Path, data: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = folder / "model.pt"
    assert "[onnx]" in refusal("export", model, tmp_path / "out", "--data", data, "--format", "onnx")
    assert not (tmp_path / "out").exists()
