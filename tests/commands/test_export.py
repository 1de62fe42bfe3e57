"""``fairseq-depthwise export``: programs that translate like the model where there is no fairseq; what is refused."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import TASK, checkpoint_of, data_in

from fairseq_compat import checkpoints
from fairseq_depthwise import cli
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator, TranslatorOptions
from fairseq_depthwise.serving.text_codec import TextOptions

EXAMPLE = Path(__file__).parents[2] / "examples" / "exported" / "translate.py"

LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "w5", "w2 zz w2", "w6 w1 w0 w0 w4 w5 w5 w1"]

SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}

#: Tokens of a translation; models that were not trained find no end.
LONGEST = 12

#: Translates with the example in a Python that has torch and what torch needs, and cannot import fairseq nor ours.
ALONE = """
import importlib.machinery, json, runpy, sys
packages, example, folders, lines = json.load(sys.stdin)
sys.path += packages
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fairseq", "fairseq_depthwise", "fairseq_compat", "omegaconf", "hydra"):
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        raise ImportError(spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Refuse())
translators = [runpy.run_path(example)["ExportedTranslator"](folder) for folder in folders]
print(json.dumps([[[one.translate(line, beam) for line in lines] for beam in (1, 4)] for one in translators]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("words") / "data-bin")


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


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("exported_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert cli.main(["export", *map(str, arguments)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("fairseq-depthwise: error: ")


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


def test_translations_without_fairseq_are_the_models(paths: list[str], data: str) -> None:
    packages = [path for path in sys.path if path.endswith("-packages")]
    folders = [path.removesuffix(".pt") for path in paths]
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "ignore", "-c", ALONE],
        input=json.dumps([packages, str(EXAMPLE), folders, LINES]), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for path, found in zip(paths, json.loads(run.stdout), strict=True):
        for beam, translations in zip((1, 4), found, strict=True):
            expected = loaded(path, beam, data=data).translations(LINES)
            assert [text for _, text in translations] == [one.text for one in expected]
            scores = [one.hypotheses[0].score * math.log(2) for one in expected]
            assert [score for score, _ in translations] == pytest.approx(scores, abs=1e-4)
            assert len(set(scores)) == len(LINES)


def test_the_example_as_a_program(
    paths: list[str], data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", [f"{line}\n" for line in LINES])
    for options in ([], ["--scores", "--lenpen", "1"]):
        monkeypatch.setattr("sys.argv", ["translate.py", paths[0].removesuffix(".pt"), "--beam", "2", *options])
        example().main()
    lines = capsys.readouterr().out.splitlines()
    texts, scored = lines[: len(LINES)], lines[len(LINES) :]
    assert len(scored) == len(LINES)
    assert all(float(line.split("\t")[0]) < 0 for line in scored)
    assert texts == loaded(paths[0], 2, data=data).translate(LINES)


@pytest.mark.parametrize("tokens", [[], ["--lang-tok-replacing-bos-eos"]])
def test_one_direction_of_many(tokens: list[str], tmp_path: Path) -> None:
    data = multilingual_data(tmp_path / "data-bin")
    checkpoint = multilingual_checkpoint(tmp_path, "--encoder-langtok", "src", "--decoder-langtok", *tokens)
    config = export(checkpoint, tmp_path / "exported", "--data", data, "-s", "en", "-t", "l1")
    assert config["languages"] == {"source": "en", "target": "l1"}
    translator = example().ExportedTranslator(tmp_path / "exported")
    expected = loaded(checkpoint, 4, data=data, source_lang="en", target_lang="l1").translate(LINES)
    assert [translator.translate(line)[1] for line in LINES] == expected


@torch.no_grad()
def test_what_is_in_the_folder(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = checkpoints.load_checkpoint(checkpoint_of(tmp_path, "sdt_transformer", **SMALL, encoder_block_size=1))
    (tmp_path / "learned.codes").write_text("#version: 0.2\nw 0\n", encoding="utf-8")
    state["cfg"]["task"] = {**TASK, "data": data}
    state["cfg"]["tokenizer"] = {"_name": "moses", "moses_no_escape": True}
    state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": "learned.codes"}
    torch.save(state, tmp_path / "checkpoint_best.pt")
    folder = tmp_path / "exported"
    capsys.readouterr()
    assert cli.main(["export", str(tmp_path), str(folder), "--json", "--dtype", "bfloat16"]) == 0
    printed = json.loads(capsys.readouterr().out)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert printed == config
    names = {"encoder.pt2", "decoder_step.pt2", "dict.src.txt", "dict.tgt.txt", "bpe.codes", "config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert (config["text"]["tokenizer"], config["text"]["bpe"]) == ("moses", "subword_nmt")
    assert config["text"]["bpe_codes"] == "bpe.codes"
    assert (config["dtype"], config["architecture"]) == ("bfloat16", "sdt_transformer")
    # The tensors are those that the configuration announces.
    sizes = {"batch": 2, "rows": 2, "source": 3, "past": 1, "past + 1": 2}
    given: dict[str, torch.Tensor] = {
        "source_tokens": torch.tensor([[4, 5, 2], [1, 6, 2]]),
        "tokens": torch.tensor([2, 2]),
    }
    for function in config["functions"].values():
        for one in function["inputs"]:
            shape = [sizes.get(size, size) for size in one["shape"]]
            given.setdefault(one["name"], torch.zeros(shape, dtype=getattr(torch, one["dtype"])))
        program = torch.export.load(folder / function["file"])
        assert not any("/" in str(note) for node in program.graph.nodes for note in [node.meta.get("stack_trace", "")])
        outputs = program.module()(*(given[one["name"]] for one in function["inputs"]))
        for output, one in zip(outputs, function["outputs"], strict=True):
            assert list(output.shape) == [sizes.get(size, size) for size in one["shape"]]
            assert output.dtype == getattr(torch, one["dtype"])
            given[one["name"]] = output
        with zipfile.ZipFile(folder / function["file"]) as archive:
            assert not any(b"fairseq" in archive.read(name) for name in archive.namelist())
    # Only an export is replaced, and by a whole one.
    assert "exists; give another name, or --force" in refusal(capsys, tmp_path, folder)
    (folder / "old").write_text("")
    assert cli.main(["export", str(tmp_path), str(folder), "--force"]) == 0
    assert {path.name for path in folder.iterdir()} == names
    assert not list(tmp_path.glob("exported.*"))
    assert "is no export, which --force would replace" in refusal(capsys, tmp_path, data, "--force")


def test_refusals(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder = checkpoint_of(tmp_path, "sdt_transformer"), tmp_path / "exported"
    assert "no such folder is here or beside the checkpoint" in refusal(capsys, path, folder)
    assert f"--data {path} is not a folder" in refusal(capsys, path, folder, "--data", path)
    assert "nowhere does not exist" in refusal(capsys, tmp_path / "nowhere", folder)
    assert "does not exist" in refusal(capsys, path, tmp_path / "nowhere" / "exported")
    assert "are 2 checkpoints; export them one by one" in refusal(capsys, f"{path}:{path}", folder)
    (tmp_path / "text.pt").write_text("no checkpoint")
    assert "text.pt" in refusal(capsys, tmp_path / "text.pt", folder)
    stock = checkpoint_of(tmp_path, "transformer", "stock.pt")
    assert "holds fairseq's own architecture transformer" in refusal(capsys, stock, folder, "--data", data)
    noisy = checkpoint_of(tmp_path, "sdt_transformer", "noisy.pt", quant_noise_scalar=0.1)
    assert "was trained with --quant-noise-scalar" in refusal(capsys, noisy, folder, "--data", data)
    state = checkpoints.load_checkpoint(path)
    state["cfg"]["model"] = {"_name": "linearized_transformer"}
    torch.save(state, tmp_path / "linear.pt")
    assert "has linear maps in the places of layers" in refusal(capsys, tmp_path / "linear.pt", folder, "--data", data)
    assert not list(tmp_path.glob("exported*"))
