"""Checkpoints together with data: any family, the first sentences, and sentences about what does not fit."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from growth_checkpoints import stock_model
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from tiny_models import FAMILIES, build_tiny
from unit_checkpoints import SENTENCES, unit_checkpoint, unit_data, unit_model

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.analysis.loaded_model import load_model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unit_data(tmp_path_factory.mktemp("units") / "data-bin", long=["w1 " * 2000], empty=[])


def source_rows(batches: Any) -> list[list[int]]:
    return [row[row != 1].tolist() for batch in batches for row in batch["net_input"]["src_tokens"]]


def rewritten(path: str, **entries: Any) -> str:
    state = checkpoints.load_checkpoint(path)
    torch.save({**state, **entries}, path)
    return path


def test_parameters_and_mode(tmp_path: Path, data: str) -> None:
    loaded = load_model(unit_checkpoint(tmp_path), data, family="mute_transformer")
    assert not loaded.model.training
    assert loaded.architecture == "mute_transformer"
    for name, value in unit_model().state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value)


@pytest.mark.parametrize("family", ["depthwise_lstm_transformer", "sdt_transformer", "transformer"])
def test_every_family(family: str, tmp_path: Path, data: str) -> None:
    path = unit_checkpoint(tmp_path)
    cfg = checkpoints.load_checkpoint(path)["cfg"]
    if family == "transformer":
        model, options = stock_model()
    else:
        model, options = build_tiny(family), Namespace(**FAMILIES[family], _name=family)
    rewritten(path, cfg={**cfg, "model": options}, model=model.state_dict())
    loaded = load_model(path, data)
    batch = next(iter(loaded.batches("valid", max_sentences=10, max_tokens=100)))
    source = {name: batch["net_input"][name] for name in ("src_tokens", "src_lengths")}
    output, expected = (one.encoder(**source)["encoder_out"][0] for one in (loaded.model, model))
    assert torch.equal(output, expected)


@pytest.mark.parametrize("max_tokens", [1, 12, 1000])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_batches_have_the_first_sentences(count: int, max_tokens: int, tmp_path: Path, data: str) -> None:
    loaded = load_model(unit_checkpoint(tmp_path), data)
    batches = loaded.batches("valid", max_sentences=count, max_tokens=max_tokens)
    expected = [loaded.encode(sentence)[0].tolist() for sentence in SENTENCES[:count]]
    assert sorted(source_rows(batches)) == sorted(expected)


def test_one_sentence(tmp_path: Path, data: str) -> None:
    loaded = load_model(unit_checkpoint(tmp_path), data)
    assert loaded.words(loaded.sentence("valid", 1)) == ["w3", "w4", "</s>"]
    assert loaded.words(loaded.encode("w3 never  w4")) == ["w3", "<unk>", "w4", "</s>"]
    for index in (-1, 7):
        with pytest.raises(UserError, match=f"--sentence-index {index} .* 0 to 6"):
            loaded.sentence("valid", index)
    with pytest.raises(UserError, match="--sentence is empty"):
        loaded.encode("  ")


def test_parts_without_sentences(tmp_path: Path, data: str) -> None:
    loaded = load_model(unit_checkpoint(tmp_path), data)
    for subset, said in (
        ("test", "--subset test.*has no such part for src-tgt"), ("empty", "--subset empty.*is empty"),
        ("long", "no sentence is left"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            loaded.batches(subset, max_sentences=10, max_tokens=100)


def test_an_embedding_file_of_the_training_and_bleu_are_not_needed(tmp_path: Path, data: str) -> None:
    path = unit_checkpoint(tmp_path)
    cfg = checkpoints.load_checkpoint(path)["cfg"]
    cfg["model"]["encoder_embed_path"] = str(tmp_path / "gone.vec")
    cfg["task"] |= {"eval_bleu": True, "eval_bleu_detok": "moses"}
    assert load_model(rewritten(path, cfg=cfg), data)


def test_several_directions(tmp_path: Path) -> None:
    path, data = multilingual_checkpoint(tmp_path), multilingual_data(tmp_path / "data")
    with pytest.raises(UserError, match=r"--subset valid: .* no such part for en-l0, l0-en, en-l1"):
        load_model(path, data).sentences("valid")


def test_what_does_not_fit(tmp_path: Path, data: str) -> None:
    path = unit_checkpoint(tmp_path)
    with pytest.raises(UserError, match=r"architecture mute_transformer; .* sdt_transformer"):
        load_model(path, data, family="sdt_transformer")
    with pytest.raises(UserError, match=r"--data .*nowhere is not a folder"):
        load_model(path, str(tmp_path / "nowhere"))
    other = unit_data(tmp_path / "other", entries=14)
    with pytest.raises(UserError, match=r"mute.pt does not fit its own options or --data .*other; size mismatch"):
        load_model(path, other)

    state = checkpoints.load_checkpoint(path)
    cfg = state["cfg"]
    rewritten(path, model={name: value for name, value in state["model"].items() if "unit_weights" not in name})
    with pytest.raises(UserError, match=r"mute.pt .*Missing key"):
        load_model(path, data)
    rewritten(path, cfg={**cfg, "task": {**cfg["task"], "_name": "theirs"}})
    with pytest.raises(UserError, match="--task theirs"):
        load_model(path, data)
    rewritten(path, cfg={name: part for name, part in cfg.items() if name != "task"})
    with pytest.raises(UserError, match="--task None"):
        load_model(path, data)
    languages = {"source_lang": None, "target_lang": None}
    rewritten(path, cfg={**cfg, "task": {**cfg["task"], **languages}})
    with pytest.raises(UserError, match="has no dictionaries"):
        load_model(path, str(tmp_path))
    rewritten(path, cfg={**cfg, "model": {"_name": "theirs"}})
    with pytest.raises(UserError, match="architecture theirs"):
        load_model(path, data)
    del state["optimizer_history"]
    torch.save(state, path)
    with pytest.raises(UserError, match="best_loss"):
        load_model(path, data)
