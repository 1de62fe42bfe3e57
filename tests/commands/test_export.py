"""``fairseq-depthwise export``: graphs that translate like the model where there is no fairseq, and weights."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import checkpoint_of
from tiny_checkpoints import TASK

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.outputs import MARKER
from fairseq_depthwise import cli
from fairseq_depthwise.checkpoints.checkpoint import from_pretrained
from fairseq_depthwise.checkpoints.fairseq_transformer import is_unused_copy
from fairseq_depthwise.translation.translation_options import TextOptions
from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLES = Path(__file__).parents[2] / "examples" / "exported"

LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "w5", "w2 zz w2", "w6 w1 w0 w0 w4 w5 w5 w1"]

SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}

#: Tokens of a translation; models that were not trained find no end.
LONGEST = 12

#: Translates with an example in a Python that has what the example needs, and cannot import fairseq nor ours.
ALONE = """
import importlib.machinery, json, runpy, sys
packages, example, refused, folders, lines = json.load(sys.stdin)
sys.path += packages + [example.rpartition("/")[0]]
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        raise ImportError(spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Refuse())
translators = [runpy.run_path(example)["ExportedTranslator"](folder) for folder in folders]
print(json.dumps([[[one.translate(line, beam) for line in lines] for beam in (1, 4)] for one in translators]))
"""

#: What must not be imported.
REFUSED = ["torch", "fairseq", "fairseq_depthwise", "fairseq_compat", "omegaconf", "hydra"]


def export(checkpoint: str, folder: Path, *options: str) -> dict[str, Any]:
    """Export with translations of so many tokens only, and return the configuration."""
    assert cli.main(["export", checkpoint, str(folder), *options]) == 0
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["search"]["max_length"] = LONGEST
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return config


def loaded(checkpoint: str, beam: int, **options: Any) -> LoadedTranslator:
    text = TextOptions(tokenized=True)
    chosen = TranslatorOptions(beam=BeamOptions(beam, 0.6, LONGEST), text=text)
    return LoadedTranslator(checkpoint, options=chosen, **options)


#: Small models that together have most of what is exported.
FAMILIES: dict[str, dict[str, Any]] = {
    "depthwise_lstm_transformer": {"max_relative_positions": 2, "relative_position_terms": "key-value", **SMALL},
    "sdt_transformer": {"encoder_layers": 2, "decoder_layers": 1},
    "mute_transformer": SMALL,
}


@pytest.fixture(scope="module")
def paths(data: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A checkpoint of each family, with what it was exported to beside it, without ``.pt``."""
    folder = tmp_path_factory.mktemp("families")
    found = [checkpoint_of(folder, family, f"{family}.pt", **options) for family, options in FAMILIES.items()]
    for path in found:
        export(path, Path(path).with_suffix(""), "--data", data)
    return found


@pytest.fixture(scope="module")
def in_int8(paths: list[str], data: str) -> Path:
    """A folder with the second model in int8."""
    folder = Path(paths[1]).parent / "int8"
    export(paths[1], folder, "--data", data, "--int8")
    return folder


def translated_alone(folders: list[str]) -> Any:
    """Translations of each folder with a beam of 1 and of 4: scores and texts."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "ignore", "-c", ALONE], capture_output=True, text=True, timeout=120,
        input=json.dumps([packages, str(EXAMPLES / "translate_onnx.py"), REFUSED, folders, LINES]),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_translations_without_fairseq_are_the_models(paths: list[str], data: str) -> None:
    found = translated_alone([path.removesuffix(".pt") for path in paths])
    for path, by_beam in zip(paths, found, strict=True):
        for beam, translations in zip((1, 4), by_beam, strict=True):
            expected = loaded(path, beam, data=data).translations(LINES)
            assert [text for _, text in translations] == [one.text for one in expected]
            scores = [one.hypotheses[0].score * math.log(2) for one in expected]
            assert [score for score, _ in translations] == pytest.approx(scores, abs=1e-4)
            assert len(set(scores)) == len(LINES)


@pytest.mark.long
def test_one_direction_of_many(tmp_path: Path) -> None:
    data = multilingual_data(tmp_path / "data-bin")
    checkpoint = multilingual_checkpoint(tmp_path, "--encoder-langtok", "src", "--decoder-langtok")
    config = export(checkpoint, tmp_path / "exported", "--data", data, "-s", "en", "-t", "l1")
    assert config["languages"] == {"source": "en", "target": "l1"}
    ((_, translations),) = translated_alone([str(tmp_path / "exported")])
    expected = loaded(checkpoint, 4, data=data, source_lang="en", target_lang="l1").translate(LINES)
    assert [text for _, text in translations] == expected
    given = ("--data", data, "-s", "en", "-t", "l1", "--format", "safetensors")  # which has no place for the tokens
    assert cli.main(["export", checkpoint, str(tmp_path / "weights"), *given]) == 1


NAMES = {"encoder.onnx", "decoder_step.onnx", "dict.src.txt", "dict.tgt.txt", "bpe.codes", "config.json", MARKER}


@pytest.fixture(scope="module")
def exported(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``exported``; its checkpoint, with a tokenizer and subwords, lies beside it."""
    folder = tmp_path_factory.mktemp("run")
    state = checkpoints.load_checkpoint(checkpoint_of(folder, "sdt_transformer", **SMALL, encoder_block_size=1))
    (folder / "learned.codes").write_text("#version: 0.2\nw 0\n", encoding="utf-8")
    state["cfg"]["task"] = {**TASK, "data": data}
    state["extra_state"]["belongs_to"] = {"tokenizer": "moses"}
    state["cfg"]["tokenizer"] = {"_name": "moses", "moses_no_escape": True}
    state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": "learned.codes"}
    torch.save(state, folder / "checkpoint_best.pt")
    assert cli.main(["export", str(folder), str(folder / "exported")]) == 0
    return folder / "exported"


def test_graphs_have_the_inputs_and_outputs_of_the_configuration(exported: Path) -> None:
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert {path.name for path in exported.iterdir()} == NAMES
    text = config["text"]
    assert (text["tokenizer"], text["bpe"], text["bpe_codes"]) == ("moses", "subword_nmt", "bpe.codes")
    assert set(config["belongs_to"]) == {"tokenizer", "source_dictionary", "target_dictionary"}
    assert (config["dtype"], config["architecture"]) == ("float32", "sdt_transformer")
    sizes = {"sentences": 2, "source": 3, "beams": 2, "capacity": 16, "2 * beams": 4}
    arrays: dict[str, np.ndarray] = {
        "source_tokens": np.array([[4, 5, 2], [1, 6, 2]]),
        "ancestors": np.full((2, 2, 16), -1),
        "forced": np.array([-1]),
    }
    for function in config["functions"].values():
        for tensor in function["inputs"]:
            shape = [sizes.get(size, size) for size in tensor["shape"]]
            arrays.setdefault(tensor["name"], np.zeros(shape, dtype=tensor["dtype"]))
        session = onnxruntime.InferenceSession(exported / function["file"])
        outputs = session.run(None, {tensor["name"]: arrays[tensor["name"]] for tensor in function["inputs"]})
        for output, tensor in zip(outputs, function["outputs"], strict=True):
            assert list(output.shape) == [sizes.get(size, size) for size in tensor["shape"]]
            assert output.dtype == tensor["dtype"]
            arrays[tensor["name"]] = output
        # Nothing of the machine that made it.
        assert sys.prefix.encode() not in (exported / function["file"]).read_bytes()


def test_only_an_export_is_replaced_and_by_a_whole_one(
    exported: Path, data: str, document: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    run = exported.parent
    assert str(exported) in refusal("export", run, exported)
    assert data in refusal("export", run, data, "--force")
    (exported / "config.json").write_text("{}")
    config = document("export", run, exported, "--force")
    assert {path.name for path in exported.iterdir()} == NAMES
    assert json.loads((exported / "config.json").read_text()) == config


def with_a_bit_changed(folder: Path) -> None:
    content = bytearray((folder / "encoder.onnx").read_bytes())
    content[len(content) // 2] ^= 4
    (folder / "encoder.onnx").write_bytes(content)


def with_graphs_exchanged(folder: Path) -> None:
    for before, after in (("encoder", "x"), ("decoder_step", "encoder"), ("x", "decoder_step")):
        (folder / f"{before}.onnx").rename(folder / f"{after}.onnx")


def configured(value: Any, *place: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        inner = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    return change


#: What happens to a folder, and the file that is named then.
DAMAGED: dict[Callable[[Path], object], str] = {
    with_a_bit_changed: "encoder.onnx",
    with_graphs_exchanged: "encoder.onnx",
    lambda folder: (folder / "dict.src.txt").rename(folder / "dict.txt"): "dict.src.txt",
    lambda folder: (folder / "dict.src.txt").write_text("".join(f"w{n} 1\n" for n in range(7, -1, -1))): "dict.*.txt",
    configured(100, "vocabulary", "target"): "dict.tgt.txt",
    lambda folder: (folder / "config.json").write_bytes(b"{"): "config.json",
}


@pytest.mark.parametrize("change", DAMAGED)
def test_damaged_folders(
    change: Callable[[Path], object], paths: list[str], tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(Path(paths[1]).with_suffix(""), tmp_path / "exported")
    change(folder)
    assert f"{folder}/{DAMAGED[change]} " in refusal("translate", folder, "--tokenized")


def test_a_folder_of_an_older_release_has_no_digests(
    paths: list[str], tmp_path: Path, printed: Callable[..., str]
) -> None:
    folder = shutil.copytree(Path(paths[1]).with_suffix(""), tmp_path / "exported")
    (tmp_path / "text").write_text("w1\n")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for about in config["functions"].values():
        assert len(about.pop("sha256")) == 64
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert printed("translate", folder, tmp_path / "text", "--tokenized")


def test_weights_in_int8_are_a_quarter_as_large(paths: list[str], in_int8: Path) -> None:
    sizes = []
    for folder in (Path(paths[1]).with_suffix(""), in_int8):
        model = onnx.load(folder / "decoder_step.onnx")
        kinds = [tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2]
        sizes.append((kinds.count(onnx.TensorProto.FLOAT), kinds.count(onnx.TensorProto.INT8)))
    (floats, none), (left, integers) = sizes
    assert none == 0
    assert integers >= 6
    assert left < floats
    # The table that embedding and output projection share: looked up in float32, multiplied in int8.
    model = onnx.load(in_int8 / "decoder_step.onnx")
    vocabulary = json.loads((in_int8 / "config.json").read_text(encoding="utf-8"))["vocabulary"]["target"]
    kinds = {
        tensor.data_type for tensor in model.graph.initializer if vocabulary in tensor.dims and len(tensor.dims) == 2
    }
    assert kinds == {onnx.TensorProto.FLOAT, onnx.TensorProto.INT8}


def test_graphs_refuse_constraints_of_a_call(in_int8: Path) -> None:
    translator = loaded(str(in_int8), 2)
    with pytest.raises(UserError, match="--constraints"):
        translator.translations(["w1"], constraints=[["w2"]])
    assert translator.translations(["w1"], constraints=[[]]) == translator.translations(["w1"])


@pytest.mark.parametrize("options", ["--data data-bin", "--int8"])
def test_options_of_checkpoints_are_refused(options: str, in_int8: Path, refusal: Callable[..., str]) -> None:
    assert options.split()[0] in refusal("translate", in_int8, *options.split(), "--cpu")


def test_without_onnx_the_extra_is_named(
    paths: list[str], data: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "[onnx]" in refusal("export", paths[0], tmp_path / "out", "--data", data)
    assert not (tmp_path / "out").exists()


KINDS = ("depthwise_lstm_transformer", "sdt_transformer", "mute_transformer", "transformer")


@pytest.fixture(scope="module")
def weights(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each kind, whose tables are one, with subwords; and the folder with its weights."""
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("weights")
    (folder / "learned.codes").write_text("#version: 0.2\nw 0\n", encoding="utf-8")
    for kind in KINDS:
        path = checkpoint_of(folder, kind, f"{kind}.pt", share_all_embeddings=True)
        state = checkpoints.load_checkpoint(path)
        state["cfg"]["task"] = {**TASK, "data": data, "max_source_positions": 9}
        state["extra_state"]["belongs_to"] = {"max_source_positions": 9}
        state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": "learned.codes"}
        torch.save(state, path)
        assert cli.main(["export", path, str(folder / kind), "--format", "safetensors"]) == 0
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_back_bit_for_bit(kind: str, weights: Path, tmp_path: Path) -> None:
    moved, checkpoint = shutil.copytree(weights / kind, tmp_path / "moved"), weights / f"{kind}.pt"
    names = {name for name in NAMES if not name.endswith(".onnx")} | {"model.safetensors"}
    assert {path.name for path in moved.iterdir()} == names
    model, task = from_pretrained(str(moved))
    found, values = model.state_dict(), checkpoints.load_checkpoint(checkpoint)["model"]
    assert set(found) == set(values)
    read = [name for name in values if not name.endswith("_float_tensor") and not is_unused_copy(name)]
    assert all(torch.equal(found[name], values[name]) for name in read)
    assert task.max_positions()[0] == 9
    text = (moved / "config.json").read_text(encoding="utf-8")
    assert (json.loads(text)["family"], str(weights) in text) == (kind, False)
    before, after = (LoadedTranslator(str(path)) for path in (checkpoint, moved))
    assert after.translations(LINES) == before.translations(LINES)


def test_weights_are_taken_like_a_checkpoint(weights: Path, tmp_path: Path, printed: Callable[..., str]) -> None:
    (tmp_path / "text").write_text("w0 w1\n")
    first, second = weights / KINDS[0], weights / KINDS[1]
    both = printed("translate", f"{first}:{second}", tmp_path / "text", "--cpu")
    assert both == printed("translate", f"{first}.pt:{second}.pt", tmp_path / "text", "--cpu")
    printed("export", first, tmp_path / "again", "--format", "safetensors")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_inspected_and_not_averaged(
    kind: str, weights: Path, tmp_path: Path, document: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    of_checkpoint, of_folder = document("inspect", weights / f"{kind}.pt"), document("inspect", weights / kind)
    assert of_folder["ties_known"]
    for name in ("architecture", "family", "encoder_layers", "decoder_embed_dim", "parameters", "dtype", "ties_known"):
        assert of_folder[name] == of_checkpoint[name]
    for path in (weights / kind, weights / kind / "model.safetensors"):
        assert str(path) in refusal("average", "--output", tmp_path / "mean.pt", path, weights / f"{kind}.pt")


def test_weights_are_analyzed_with_data(weights: Path, data: str, document: Callable[..., Any]) -> None:
    reports = []
    for path in (weights / KINDS[0] / "model.safetensors", weights / f"{KINDS[0]}.pt"):
        (report,) = document("similarity", path, "--data", data)["checkpoints"]
        assert report.pop("checkpoint") == str(path)
        reports.append(report)
    assert reports[0] == reports[1]


def with_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    """Other weights, and their digest."""

    def rewrite(folder: Path) -> None:
        from safetensors.torch import load, save

        content = (file := folder / "model.safetensors").read_bytes()
        change(values := load(content))
        said = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        file.write_bytes(save(values, said))
        configured(provenance.file_digest(str(file)), "weights", "sha256")(folder)

    return rewrite


TABLE = "decoder.embedding.tokens.weight"

#: What a stranger may have done to a folder.
HOSTILE: list[Callable[[Path], object]] = [
    lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100),
    lambda folder: (folder / "dict.src.txt").write_text("".join(f"w{n} 1\n" for n in range(7, -1, -1))),
    lambda folder: (folder / "dict.src.txt").unlink(),
    with_weights(lambda values: values.update({TABLE: torch.zeros(2, 2)})),
    with_weights(lambda values: values.update({TABLE: torch.full_like(values[TABLE], torch.nan)})),
    with_weights(lambda values: values.update({TABLE: values[TABLE].view(torch.int32)})),
    configured(10_000, "options", "encoder_layers"),
    configured("${oc.env:HOME}", "options", "encoder_embed_path"),
    configured("gpt2", "text", "bpe"),
    configured([], "options"),
    configured({}, "weights"),
]


@pytest.mark.parametrize("change", HOSTILE)
def test_weights_of_strangers_are_refused(
    change: Callable[[Path], object], weights: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(weights / KINDS[0], tmp_path / "changed")
    change(folder)
    assert str(folder) in refusal("translate", folder, "--cpu")
