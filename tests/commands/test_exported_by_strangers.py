"""Exported folders of strangers: what could run code or never end is refused before anything is loaded."""

from __future__ import annotations

import importlib
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
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

EXAMPLES = Path(__file__).parents[2] / "examples" / "exported"


@pytest.fixture(scope="module")
def exported(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a small model was exported to."""
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = checkpoint_of(folder, "depthwise_lstm_transformer", encoder_layers=1, decoder_layers=1)
    assert cli.main(["export", checkpoint, str(folder / "onnx"), "--data", data]) == 0
    return folder / "onnx"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module, which finds what lies beside it as the program does."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("translate_onnx")


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
    folder = shutil.copytree(exported, tmp_path / "exported")
    inner = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    *above, last = place.split(".")
    for key in above:
        inner = inner[key]
    inner[last] = value
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.argv", ["translate_onnx.py", str(folder)])
    assert example.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"translate_onnx.py: error: {folder}")


@pytest.mark.parametrize("name", ["dict.src.txt", "dict.tgt.txt", "encoder.onnx", "decoder_step.onnx"])
def test_files_of_another_export_are_refused(name: str, exported: Path, example: Any, tmp_path: Path) -> None:
    """All of them would fit, and translations would be others without a word."""
    folder = shutil.copytree(exported, tmp_path / "exported")
    if name.startswith("dict"):
        first, second, *rest = (folder / name).read_text(encoding="utf-8").split("\n")
        (folder / name).write_text("\n".join([second, first, *rest]), encoding="utf-8")
    else:
        graph = onnx.load(folder / name)
        graph.doc_string = "another"
        onnx.save(graph, folder / name)
    with pytest.raises(example.ExportError, match="source" if "src" in name else "target" if "tgt" in name else name):
        example.ExportedTranslator(folder)


@pytest.mark.parametrize("change", ["Loop", "a domain", "a function", "a division", "a file", "garbage"])
def test_other_operators_are_refused_before_they_are_loaded(
    change: str, exported: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(exported, tmp_path / "exported")
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


def test_programs_of_an_earlier_release_are_refused_by_name(
    exported: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = shutil.copytree(exported, tmp_path / "exported")
    text = (folder / "config.json").read_text(encoding="utf-8").replace(".onnx", ".pt2")
    (folder / "config.json").write_text(text, encoding="utf-8")
    assert "torch.export" in refusal("translate", folder, "--tokenized")
