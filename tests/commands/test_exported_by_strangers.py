"""Exported folders of strangers: what could run code or never end is refused before anything is loaded."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli

EXAMPLES = Path(__file__).parents[2] / "examples" / "exported"


@pytest.fixture(scope="module")
def exported(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a small model was exported to: the folders ``torch`` and ``onnx``, this one where its extra is there."""
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = checkpoint_of(folder, "depthwise_lstm_transformer", encoder_layers=1, decoder_layers=1)
    formats = ["torch", "onnx"] if importlib.util.find_spec("onnxscript") else ["torch"]
    for kind in formats:
        assert cli.main(["export", checkpoint, str(folder / kind), "--data", data, "--format", kind]) == 0
    return folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module, which finds what lies beside it as the program does."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("translate")


class Runs:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, (CODE,)


#: What must not run: it leaves a file, whose name needs no quotes and no module that is loaded.
CODE = "open('ran', 'w')"


def pickled() -> bytes:
    file = io.BytesIO()
    torch.save((Runs(),), file)
    return file.getvalue()


def repacked(path: Path, change: Any) -> None:
    """Write an archive anew; ``change`` is given its files, and may give back options of each."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    compression = change(files) or zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def model(change: Any) -> Any:
    """A change of what the operations and shapes are, as JSON."""

    def of_files(files: dict[str, bytes]) -> None:
        document = json.loads(files["archive/models/model.json"])
        change(document["graph_module"])
        files["archive/models/model.json"] = json.dumps(document).encode()

    return of_files


def everywhere(key: str, value: str) -> Any:
    """Put a text in all places of one name."""

    def put(document: Any) -> None:
        for name, inner in document.items() if isinstance(document, dict) else enumerate(document):
            if name == key and isinstance(inner, str):
                document[name] = value
            elif isinstance(inner, (dict, list)):
                put(inner)

    return model(put)


def weights(**values: Any) -> Any:
    def of_files(files: dict[str, bytes]) -> None:
        document = json.loads(files["archive/data/weights/model_weights_config.json"])
        next(iter(document["config"].values())).update(values)
        files["archive/data/weights/model_weights_config.json"] = json.dumps(document).encode()
        files["archive/data/weights/weight_0"] = pickled()

    return of_files


TREE = '[1, {"type": "collections.defaultdict", "context": "[\\"os\\", \\"system\\"]", "children_spec": []}]'

#: Files that would run code where they are given to ``torch.export.load``, or are damaged.
HOSTILE: dict[str, Any] = {
    "sample inputs": lambda files: files.update({"archive/data/sample_inputs/model.pt": pickled()}),
    "a weight": weights(use_pickle=True),
    "a weight, said to be none": weights(use_pickle=1),
    "an object": lambda files: files.update({"archive/data/constants/opaque_obj_0": pickle.dumps(Runs())}),
    "weights of an older release": lambda files: files.update({"archive/data/weights/model.pt": pickled()}),
    "weights of no bytes": lambda files: files.update({"archive/data/weights/weight_0": b""}),
    "a library": lambda files: files.update({"archive/data/aotinductor/model/x.so": b"x"}),
    "an older release": lambda files: files.update({"serialized_example_inputs.pt": pickled(), "version": b"8.1"}),
    "a size": everywhere("expr_str", f"exec({CODE!r})"),
    "a size without quotes": everywhere("expr_str", "exit(1)"),
    "an attribute in a size": everywhere("expr_str", "Symbol('s0').__class__"),
    "an operator": everywhere("target", "torch.hub.load"),
    "an operator of another library": everywhere("target", "torch.ops.prim.Print.default"),
    "an operator that writes out of bounds": everywhere("target", "torch.ops.aten.embedding_dense_backward.default"),
    "a power of powers": everywhere("expr_str", "9**9**9**9"),
    "a large power": everywhere("expr_str", "Pow(Symbol('s0', positive=True, integer=True), Integer(99999999))"),
    "an attribute of the operators": everywhere("target", "torch.ops.aten.__class__.__subclasses__"),
    "a number that takes forever to read": everywhere("expr_str", "1" * 200 + "!"),
    "the name of an operation": everywhere("name", f"a={CODE}"),
    "a tree of arguments": everywhere("in_spec", TREE),
    "a condition": model(lambda graph: graph.update(guards_code=[CODE])),
    "a function": model(lambda graph: graph.update(as_operator="torch.load")),
    "deep": model(lambda graph: graph.update(metadata=json.loads("[" * 900 + "]" * 900))),
    "compressed": lambda files: zipfile.ZIP_DEFLATED,
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_files_that_could_run_code_are_refused(
    hostile: str, exported: Path, example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(exported / "torch" / "encoder.pt2", tmp_path)
    repacked(tmp_path / "encoder.pt2", HOSTILE[hostile])
    with pytest.raises(example.ProgramError) as raised:
        example.load_program(tmp_path / "encoder.pt2")
    assert str(raised.value).startswith(f"{tmp_path}/encoder.pt2 is ")
    assert len(str(raised.value).splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.pt2"]


def test_damage_is_found_before_a_program_is_used(exported: Path, example: Any, tmp_path: Path) -> None:
    whole = (exported / "torch" / "encoder.pt2").read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = [one for one in archive.infolist() if one.file_size > 100]
    assert len(entries) > 3
    places = []
    for entry in entries:  # content begins after 30 bytes of a header, which say how long name and padding are
        at = entry.header_offset
        places.append(at + 30 + sum(int.from_bytes(whole[at + n : at + n + 2], "little") for n in (26, 28)) + 50)
    changed = [whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in places]
    for content in [whole[: len(whole) // 2], b"", *changed]:
        (tmp_path / "encoder.pt2").write_bytes(content)
        with pytest.raises(example.ProgramError, match=r"encoder.pt2 is (damaged|refused)"):
            example.load_program(tmp_path / "encoder.pt2")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("functions.encoder.file", "../../../../etc/passwd"),
        ("search.length_penalty", math.nan),
        ("source.suffix", [10**6]),
    ],
)
def test_a_configuration_that_makes_no_sense_is_one_sentence(
    place: str, value: Any, exported: Path, example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = shutil.copytree(exported / "torch", tmp_path / "exported")
    inner = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    *above, last = place.split(".")
    for key in above:
        inner = inner[key]
    inner[last] = value
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.argv", ["translate.py", str(folder)])
    assert example.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"translate.py: error: {folder}")


@pytest.mark.parametrize("change", ["Loop", "a domain", "a function", "a division", "a file", "garbage"])
def test_other_operators_are_refused_before_they_are_loaded(
    change: str, exported: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    onnx = pytest.importorskip("onnx")
    folder = shutil.copytree(exported / "onnx", tmp_path / "exported")
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
    elif change == "a division":  # of the smallest integer by -1, which ends the process
        for name, number in (("least", -(2**63)), ("one", -1)):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number), name))
        model.graph.node.insert(0, onnx.helper.make_node("Div", ["least", "one"], ["z"]))
    elif change == "a file":  # whose content no digest covers
        onnx.save_model(model, folder / "encoder.onnx", save_as_external_data=True, size_threshold=512, location="more")
        model = onnx.load(folder / "encoder.onnx", load_external_data=False)
    content = b"\xff" * 10**7 if change == "garbage" else model.SerializeToString()
    (folder / "encoder.onnx").write_bytes(content)
    assert f"{folder}/encoder.onnx is damaged, or not what export writes" in refusal("translate", folder, "--tokenized")
    run = subprocess.run(
        [sys.executable, EXAMPLES / "translate_onnx.py", folder], input="", capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1
    assert f"{folder}/encoder.onnx is damaged" in run.stderr
