"""``fairseq-depthwise export``: programs that translate like the model where there is no fairseq; what is refused."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import math
import pickle
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import checkpoint_of
from tiny_checkpoints import TASK

from fairseq_compat import checkpoints
from fairseq_compat.outputs import MARKER
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
sys.path += packages + [example.rpartition("/")[0]]
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
    """The example as a module, which finds what lies beside it as the program does."""
    if str(EXAMPLE.parent) not in sys.path:
        sys.path.append(str(EXAMPLE.parent))
    spec = importlib.util.spec_from_file_location("exported_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_one_direction_of_many(tmp_path: Path) -> None:
    data = multilingual_data(tmp_path / "data-bin")
    checkpoint = multilingual_checkpoint(tmp_path, "--encoder-langtok", "src", "--decoder-langtok")
    config = export(checkpoint, tmp_path / "exported", "--data", data, "-s", "en", "-t", "l1")
    assert config["languages"] == {"source": "en", "target": "l1"}
    translator = example().ExportedTranslator(tmp_path / "exported")
    expected = loaded(checkpoint, 4, data=data, source_lang="en", target_lang="l1").translate(LINES)
    assert [translator.translate(line)[1] for line in LINES] == expected


NAMES = {"encoder.pt2", "decoder_step.pt2", "dict.src.txt", "dict.tgt.txt", "bpe.codes", "config.json", MARKER}


@pytest.fixture(scope="module")
def exported(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``exported`` in bfloat16; its checkpoint, with a tokenizer and subwords, lies beside it."""
    folder = tmp_path_factory.mktemp("run")
    state = checkpoints.load_checkpoint(checkpoint_of(folder, "sdt_transformer", **SMALL, encoder_block_size=1))
    (folder / "learned.codes").write_text("#version: 0.2\nw 0\n", encoding="utf-8")
    state["cfg"]["task"] = {**TASK, "data": data}
    state["extra_state"]["belongs_to"] = {"tokenizer": "moses"}
    state["cfg"]["tokenizer"] = {"_name": "moses", "moses_no_escape": True}
    state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": "learned.codes"}
    torch.save(state, folder / "checkpoint_best.pt")
    assert cli.main(["export", str(folder), str(folder / "exported"), "--dtype", "bfloat16"]) == 0
    return folder / "exported"


@torch.no_grad()
def test_programs_have_the_inputs_and_outputs_of_the_configuration(exported: Path) -> None:
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert {path.name for path in exported.iterdir()} == NAMES
    text = config["text"]
    assert (text["tokenizer"], text["bpe"], text["bpe_codes"]) == ("moses", "subword_nmt", "bpe.codes")
    assert config["belongs_to"] == {"tokenizer": "moses"}
    assert (config["dtype"], config["architecture"]) == ("bfloat16", "sdt_transformer")
    sizes = {"sentences": 2, "source": 3, "beams": 2, "capacity": 16, "2 * beams": 4}
    given: dict[str, torch.Tensor] = {
        "source_tokens": torch.tensor([[4, 5, 2], [1, 6, 2]]),
        "ancestors": torch.full((2, 2, 16), -1),
        "forced": torch.tensor([-1]),
    }
    for function in config["functions"].values():
        for one in function["inputs"]:
            shape = [sizes.get(size, size) for size in one["shape"]]
            given.setdefault(one["name"], torch.zeros(shape, dtype=getattr(torch, one["dtype"])))
        program = torch.export.load(exported / function["file"])
        # Nothing of the machine and of the packages that made it.
        assert not any("/" in str(node.meta.get("stack_trace", "")) for node in program.graph.nodes)
        outputs = program.module()(*(given[one["name"]] for one in function["inputs"]))
        for output, one in zip(outputs, function["outputs"], strict=True):
            assert list(output.shape) == [sizes.get(size, size) for size in one["shape"]]
            assert output.dtype == getattr(torch, one["dtype"])
            given[one["name"]] = output
        with zipfile.ZipFile(exported / function["file"]) as archive:
            assert not any(b"fairseq" in archive.read(name) for name in archive.namelist())


def test_only_an_export_is_replaced_and_by_a_whole_one(
    exported: Path, data: str, document: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    run = exported.parent
    assert str(exported) in refusal("export", run, exported)
    assert data in refusal("export", run, data, "--force")
    (run / "exported.before").mkdir()
    (exported / "config.json").write_text("{}")
    (exported / "notes").write_text("mine")
    assert "notes" in refusal("export", run, exported, "--force")
    (exported / "notes").unlink()
    before = sorted(run.iterdir())
    config = document("export", run, exported, "--force")
    assert {path.name for path in exported.iterdir()} == NAMES
    assert json.loads((exported / "config.json").read_text()) == config
    assert config["dtype"] == "float32"
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("change", ["exchanged", "damaged", "older", "dictionary"])
def test_graphs_are_those_that_were_exported(
    change: str, paths: list[str], tmp_path: Path, printed: Callable[..., str], refusal: Callable[..., str]
) -> None:
    folder = tmp_path / "exported"
    shutil.copytree(Path(paths[1]).with_suffix(""), folder)
    (tmp_path / "text").write_text("w1\n")
    words = ["translate", folder, tmp_path / "text", "--tokenized"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if change == "dictionary":  # which another folder has
        config["belongs_to"] = {"source_dictionary": "sha256:1234 of 12 symbols"}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert "the source dictionary" in refusal(*words)
        return
    if change == "older":  # whose configuration has no digests
        for about in config["functions"].values():
            assert len(about.pop("sha256")) == 64
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert printed(*words)
        return
    if change == "exchanged":
        for before, after in (("encoder", "x"), ("decoder_step", "encoder"), ("x", "decoder_step")):
            (folder / f"{before}.pt2").rename(folder / f"{after}.pt2")
    else:
        content = bytearray((folder / "encoder.pt2").read_bytes())
        content[len(content) // 2] ^= 4
        (folder / "encoder.pt2").write_bytes(content)
    assert f"{folder}/encoder.pt2 is damaged, or not the one that was exported" in refusal(*words)


# --- folders of strangers --------------------------------------------------------------------------------------------


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


def argument(node: int, value: Any, target: str | None = None) -> Any:
    """Put a value in the place of the first argument of a node."""

    def put(graph_module: Any) -> None:
        found = graph_module["graph"]["nodes"][node]
        found.update(target=target or found["target"])
        found["inputs"][0]["arg"] = value

    return model(put)


def squared(graph_module: Any) -> None:
    """Let a number be multiplied with itself, and the product with itself, and so on."""
    names = [graph_module["graph"]["nodes"][0]["outputs"][0]["as_sym_int"]["as_name"], *(f"n{n}" for n in range(45))]
    for before, after in itertools.pairwise(names):
        factors = [{"name": name, "arg": {"as_sym_int": {"as_name": before}}, "kind": 1} for name in "ab"]
        product = {"target": "_operator.mul", "inputs": factors, "outputs": [{"as_sym_int": {"as_name": after}}]}
        graph_module["graph"]["nodes"].insert(1, product)


TREE = '[1, {"type": "collections.defaultdict", "context": "[\\"os\\", \\"system\\"]", "children_spec": []}]'

#: Files that would run code where they are given to ``torch.export.load``, or are damaged.
HOSTILE: dict[str, Any] = {
    "sample inputs": lambda files: files.update({"archive/data/sample_inputs/model.pt": pickled()}),
    "a weight": weights(use_pickle=True),
    "a weight, said to be none": weights(use_pickle=1),
    "an object": lambda files: files.update({"archive/data/constants/opaque_obj_0": pickle.dumps(Runs())}),
    "weights of an older release": lambda files: files.update({"archive/data/weights/model.pt": pickled()}),
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
    "many factors": everywhere("expr_str", f"Mul({', '.join(100 * ['s0'])}, 2)" + 100 * " "),
    "a large size": argument(0, {"as_ints": [2**40]}, "torch.ops.aten.zeros.default"),
    "products of products": model(squared),
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
    hostile: str, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = example()
    shutil.copy(Path(paths[0]).with_suffix("") / "encoder.pt2", tmp_path)
    repacked(tmp_path / "encoder.pt2", HOSTILE[hostile])
    with pytest.raises(module.ProgramError) as raised:
        module.load_program(tmp_path / "encoder.pt2")
    assert str(raised.value).startswith(f"{tmp_path}/encoder.pt2 is ")
    assert len(str(raised.value).splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.pt2"]


def test_damage_is_found_before_a_program_is_used(paths: list[str], tmp_path: Path) -> None:
    module, whole = example(), (Path(paths[0]).with_suffix("") / "encoder.pt2").read_bytes()
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
        with pytest.raises(module.ProgramError, match=r"encoder.pt2 is (damaged|refused)"):
            module.load_program(tmp_path / "encoder.pt2")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("functions.encoder.file", "../../../../etc/passwd"),
        ("search.length_penalty", math.nan),
        ("source.suffix", [10**6]),
    ],
)
def test_a_configuration_that_makes_no_sense_is_one_sentence(
    place: str, value: Any, paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = shutil.copytree(Path(paths[0]).with_suffix(""), tmp_path / "exported")
    inner = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    *above, last = place.split(".")
    for key in above:
        inner = inner[key]
    inner[last] = value
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.argv", ["translate.py", str(folder)])
    assert example().main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"translate.py: error: {folder}")


def test_a_full_disk_is_one_sentence(data: str, tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = checkpoint_of(tmp_path, "sdt_transformer", encoder_block_size=1, **SMALL)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        sentence = refusal("export", path, tmp_path / "out", "--data", data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sentence.startswith(f"cannot write {tmp_path}/out/encoder.pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]
