"""Exported folders in ONNX, and of either format in the place of a checkpoint: the model's own translations."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.kept_graphs import VARIABLE
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions
from fairseq_depthwise.serving.text_codec import TextOptions

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLE = Path(__file__).parents[2] / "examples" / "exported" / "translate_onnx.py"

LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "w5", "w2 zz w2", "w6 w1 w0 w0 w4 w5 w5 w1"]

LONGEST = 20

Folders = Callable[[str], Path]

FAMILIES: dict[str, dict[str, Any]] = {
    "sdt_transformer": {"encoder_layers": 2, "decoder_layers": 1},
    "mute_transformer": {"encoder_layers": 1, "decoder_layers": 1},
}


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


def loaded(path: str, beam: int, *, data: str, precision: str = "fp32") -> LoadedTranslator:
    text = TextOptions(tokenized=True)
    return LoadedTranslator(
        path, data=data, options=TranslatorOptions(BeamOptions(beam, 0.6, LONGEST), text, precision=precision)
    )


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


@pytest.fixture(scope="module")
def folders(data: str, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """``folders(family)``: a folder with ``model.pt``, and what it was exported to: ``onnx`` and ``int8``."""

    @functools.cache
    def exported(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        checkpoint = checkpoint_of(folder, family, "model.pt", **FAMILIES[family])
        for name, given in (("onnx", []), ("int8", ["--int8"])):
            words = ["export", checkpoint, str(folder / name), "--data", data, "--format", "onnx", *given]
            assert cli.main(words) == 0
            config = config_of(folder / name)
            config["search"]["max_length"] = LONGEST
            (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return exported


def test_translations_with_onnxruntime_alone_are_the_models(folders: Folders, data: str) -> None:
    folder = folders("sdt_transformer")
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


def test_files_are_as_the_configuration_says(folders: Folders) -> None:
    folder = folders("sdt_transformer") / "onnx"
    config = config_of(folder)
    for about in config["functions"].values():
        model = onnx.load(folder / about["file"])
        onnx.checker.check_model(model, full_check=True)
        assert model.producer_name == "fairseq-depthwise"
        assert [entry.version for entry in model.opset_import if entry.domain == ""] == [20]
        assert not [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
        session = runtime.InferenceSession(folder / about["file"])
        for side, entries in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            assert [entry.name for entry in entries] == [tensor["name"] for tensor in about[side]]
            for entry, tensor in zip(entries, about[side], strict=True):
                fixed = [size for size in tensor["shape"] if isinstance(size, int)]
                assert [size for size in entry.shape if isinstance(size, int)] == fixed, entry.name


def test_a_batch_of_any_size_is_one_run(folders: Folders) -> None:
    session = runtime.InferenceSession(folders("sdt_transformer") / "onnx" / "encoder.onnx")
    for shape in ((1, 1), (1, 9), (5, 1), (3, 7)):
        padding, keys, *_ = session.run(None, {"source_tokens": np.full(shape, 5, dtype=np.int64)})
        assert padding.shape == shape
        assert keys.shape[::2] == shape


def test_weights_in_int8_are_a_quarter_as_large(folders: Folders) -> None:
    sizes = []
    for name in ("onnx", "int8"):
        model = onnx.load(folders("sdt_transformer") / name / "decoder_step.onnx")
        kinds = [tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2]
        sizes.append((kinds.count(onnx.TensorProto.FLOAT), kinds.count(onnx.TensorProto.INT8)))
    (floats, none), (left, integers) = sizes
    assert none == 0
    assert integers >= 6
    assert left < floats
    # The table that embedding and output projection share: looked up in float32, multiplied in int8.
    model = onnx.load(folders("sdt_transformer") / "int8" / "decoder_step.onnx")
    vocabulary = config_of(folders("sdt_transformer") / "int8")["vocabulary"]["target"]
    kinds = {
        tensor.data_type for tensor in model.graph.initializer if vocabulary in tensor.dims and len(tensor.dims) == 2
    }
    assert kinds == {onnx.TensorProto.FLOAT, onnx.TensorProto.INT8}


@pytest.mark.long
def test_units_in_int8_have_a_matrix_each(folders: Folders) -> None:
    """No linear layer of the encoder stays in float32, and no matrix is there twice."""
    dimensions = {}
    for name in ("onnx", "int8"):
        model = onnx.load(folders("mute_transformer") / name / "encoder.onnx")
        dimensions[name] = [
            (tensor.data_type, list(tensor.dims)) for tensor in model.graph.initializer if "weight" in tensor.name
        ]
    units = [dims for _, dims in dimensions["onnx"] if len(dims) == 3 and dims[1] > 1]
    integers = [dims for kind, dims in dimensions["int8"] if kind == onnx.TensorProto.INT8]
    assert units
    for size in {tuple(dims) for dims in units}:
        assert integers.count(list(size[1:])) >= size[0] * units.count(list(size))
    assert not [dims for kind, dims in dimensions["int8"] if kind == onnx.TensorProto.FLOAT and dims in units]


def test_translate_in_int8_is_the_exported_folder(
    folders: Folders, data: str, printed: Callable[..., str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Made at the first use, and kept; lines with constraints are searched in float32."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    folder = folders("sdt_transformer")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    search = [tmp_path / "text", "--beam", "3", "--max-len-b", str(LONGEST), "--tokenized", "--json"]
    expected = printed("translate", folder / "int8", *search)
    for made in (True, False):
        assert (
            cli.main(["translate", *map(str, [folder / "model.pt", *search]), "--data", data, "--cpu", "--int8"]) == 0
        )
        captured = capsys.readouterr()
        assert captured.out == expected
        assert ("quantizing" in captured.err) == made
    translator = loaded(str(folder / "model.pt"), 3, data=data, precision="int8")
    (found,) = translator.translations(["w3 w1"], constraints=[["w5"]])
    assert "w5" in found.text.split()
    assert not found.unmet_constraints


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--data {data}", "--data is for checkpoints"),
        ("--int8", "--int8 is for checkpoints"),
        ("--print-alignment", "--print-alignment is for checkpoints"),
        ("-s xx", "src to tgt, not from xx to tgt"),
    ],
)
def test_options_of_checkpoints_are_refused(
    options: str, named: str, folders: Folders, data: str, refusal: Callable[..., str]
) -> None:
    folder = folders("sdt_transformer") / "onnx"
    assert named.format(data=data) in refusal("translate", folder, *options.format(data=data).split(), "--cpu")


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("config.json", b"{", "config.json is not what export writes"),
        ("config.json", b'{"format": 1}', "format 1"),
        ("config.json", b"[" * 100_000, "config.json is not what export writes"),
        ("encoder.onnx", b"", "encoder.onnx is damaged"),
        ("dict.src.txt", b"w0 1\n", "dict.src.txt has 5 symbols"),
        ("dict.src.txt", None, "dict.src.txt is missing"),
        ("encoder.onnx", None, "encoder.onnx is missing"),
    ],
    ids=range(7),
)
def test_damaged_folders_are_one_sentence(
    file: str,
    content: bytes | None,
    named: str,
    folders: Folders,
    tmp_path: Path,
    refusal: Callable[..., str],
) -> None:
    folder = tmp_path / "exported"
    shutil.copytree(folders("sdt_transformer") / "onnx", folder)
    if content is None:
        (folder / file).unlink()
        os.mkfifo(folder / file)  # which is not read
    else:
        (folder / file).write_bytes(content)
    assert named in refusal("translate", folder, "--tokenized")


@pytest.mark.parametrize("change", ["Loop", "a domain", "a function", "garbage"])
def test_other_operators_are_refused_before_they_are_loaded(
    change: str, folders: Folders, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(folders("sdt_transformer") / "onnx", tmp_path / "exported")
    config = config_of(folder)
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


@pytest.mark.parametrize(
    ("part", "entry", "value"),
    [("source", "suffix", ["4"]), ("target", "longest", -1), ("vocabulary", "source", 1e999)],
)
def test_numbers_that_make_no_sense_are_one_sentence(
    part: str, entry: str, value: Any, folders: Folders, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(folders("sdt_transformer") / "onnx", tmp_path / "exported")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config[part][entry] = value
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "config.json is not what export writes" in refusal("translate", folder, "--tokenized")


def test_without_onnx_the_extra_is_named(
    folders: Folders,
    data: str,
    tmp_path: Path,
    refusal: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = folders("sdt_transformer") / "model.pt"
    assert "[onnx]" in refusal("export", model, tmp_path / "out", "--data", data, "--format", "onnx")
    assert not (tmp_path / "out").exists()
