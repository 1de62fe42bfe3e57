"""``fairseq-depthwise export --format safetensors``: the same model again, bit for bit; what strangers may write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import checkpoint_of
from tiny_checkpoints import TASK

from fairseq_compat import checkpoints
from fairseq_compat.belonging import file_digest
from fairseq_depthwise import cli
from fairseq_depthwise.checkpoints.checkpoint import from_pretrained
from fairseq_depthwise.checkpoints.stock_transformer import is_unused_copy
from fairseq_depthwise.serving.loaded_translator import LoadedTranslator

safetensors = pytest.importorskip("safetensors.torch")

KINDS = ("depthwise_lstm_transformer", "sdt_transformer", "mute_transformer", "transformer")

LINES = ["w0 w1", "w3 w1 w2 w7 w7 w6", "", "w2 zz w2"]


@pytest.fixture(scope="module")
def folder(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each kind, whose tables are one, with a tokenizer and subwords; and what each was exported to."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "learned.codes").write_text("#version: 0.2\nw 0\n", encoding="utf-8")
    for kind in KINDS:
        path = checkpoint_of(folder, kind, f"{kind}.pt", share_all_embeddings=True)
        state = checkpoints.load_checkpoint(path)
        state["cfg"]["task"] = {**TASK, "data": data, "max_source_positions": 9}
        state["cfg"]["bpe"] = {"_name": "subword_nmt", "bpe_codes": "learned.codes"}
        state["extra_state"]["belongs_to"] = {"max_source_positions": 9}
        torch.save(state, path)
        assert cli.main(["export", path, str(folder / kind), "--format", "safetensors"]) == 0
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_comes_back_bit_for_bit(kind: str, folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder / kind, tmp_path / "moved")
    names = {"model.safetensors", "config.json", "dict.src.txt", "dict.tgt.txt", "bpe.codes", "made_by.json"}
    assert {path.name for path in moved.iterdir()} == names
    values = checkpoints.load_checkpoint(folder / f"{kind}.pt")["model"]
    written = safetensors.load_file(moved / "model.safetensors")
    assert len(written) < len(values)  # the table is in it once
    model, task = from_pretrained(str(moved))
    found = model.state_dict()
    assert set(found) == set(values)
    read = [name for name in values if not name.endswith("_float_tensor") and not is_unused_copy(name)]
    assert all(torch.equal(found[name], values[name]) for name in read)
    assert "decoder.output_projection.weight" not in written
    assert task.max_positions()[0] == 9
    config = (moved / "config.json").read_text(encoding="utf-8")
    assert json.loads(config)["family"] == kind
    assert str(folder) not in config
    before, after = (LoadedTranslator(str(path)) for path in (folder / f"{kind}.pt", moved))
    assert after.translations(LINES) == before.translations(LINES)


def test_commands_take_the_folder_like_a_checkpoint(folder: Path, tmp_path: Path, printed: Callable[..., str]) -> None:
    (tmp_path / "text").write_text("w0 w1\n")
    first, second = folder / KINDS[0], folder / KINDS[1]
    both = printed("translate", f"{first}:{second}", tmp_path / "text", "--cpu")
    assert both == printed("translate", f"{first}.pt:{second}.pt", tmp_path / "text", "--cpu")
    printed("export", first, tmp_path / "again", "--format", "safetensors")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (first / name).read_bytes()


def test_many_directions_are_refused(tmp_path: Path, refusal: Callable[..., str]) -> None:
    checkpoint, data = multilingual_checkpoint(tmp_path), multilingual_data(tmp_path / "bin")
    given = ("export", checkpoint, tmp_path / "out", "--data", data, "-s", "en", "-t", "l1", "--format", "safetensors")
    assert "directions" in refusal(*given)


def with_other_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    """Weights that are changed, and of which the configuration has the digest."""

    def rewrite(folder: Path) -> None:
        from safetensors import safe_open

        values = safetensors.load_file(folder / "model.safetensors")
        with safe_open(folder / "model.safetensors", "pt") as opened:
            tied = opened.metadata()
        change(values)
        safetensors.save_file(values, folder / "model.safetensors", tied)
        configured(file_digest(str(folder / "model.safetensors")), "weights", "sha256")(folder)

    return rewrite


def configured(value: Any, *place: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        inner = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    return change


TABLE = "decoder.embedding.tokens.weight"

#: What a stranger may write.
HOSTILE: list[Callable[[Path], object]] = [
    lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100),
    lambda folder: (folder / "dict.src.txt").write_text("".join(f"w{n} 1\n" for n in range(7, -1, -1))),
    lambda folder: (folder / "bpe.codes").rename(folder / "codes"),
    lambda folder: (folder / "dict.src.txt").unlink(),
    with_other_weights(lambda values: values.update({TABLE: torch.zeros(2, 2)})),
    with_other_weights(lambda values: values.update({TABLE: torch.full_like(values[TABLE], torch.nan)})),
    with_other_weights(lambda values: values.clear()),
    configured(10_000, "options", "encoder_layers"),
    configured(2**24, "options", "max_source_positions"),
    configured("${oc.env:HOME}", "options", "encoder_embed_path"),
    configured("elsewhere", "architecture"),
    configured("gpt2", "text", "bpe"),
    configured([], "options"),
    configured({}, "weights"),
    configured(1, "format"),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_strangers_folders_are_refused(number: int, folder: Path, tmp_path: Path, refusal: Callable[..., str]) -> None:
    changed = shutil.copytree(folder / KINDS[0], tmp_path / "changed")
    HOSTILE[number](changed)
    assert str(changed) in refusal("translate", changed, "--cpu")
