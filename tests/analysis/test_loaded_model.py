"""Checkpoints together with data: any family, the first sentences, and sentences about what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from unit_checkpoints import SENTENCES, unit_checkpoint, unit_data, unit_model

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.analysis.loaded_model import load_model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unit_data(tmp_path_factory.mktemp("units") / "data-bin")


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


@pytest.mark.parametrize("max_tokens", [1, 12, 1000])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_batches_have_the_first_sentences(count: int, max_tokens: int, tmp_path: Path, data: str) -> None:
    loaded = load_model(unit_checkpoint(tmp_path), data)
    batches = loaded.batches("valid", max_sentences=count, max_tokens=max_tokens)
    encode = loaded.task.source_dictionary.encode_line
    expected = [encode(sentence, add_if_not_exist=False).tolist() for sentence in SENTENCES[:count]]
    assert sorted(source_rows(batches)) == sorted(expected)


def test_an_embedding_file_of_the_training_and_bleu_are_not_needed(tmp_path: Path, data: str) -> None:
    path = unit_checkpoint(tmp_path)
    cfg = checkpoints.load_checkpoint(path)["cfg"]
    cfg["model"]["encoder_embed_path"] = str(tmp_path / "gone.vec")
    cfg["task"] |= {"eval_bleu": True, "eval_bleu_detok": "moses"}
    assert load_model(rewritten(path, cfg=cfg), data)


def test_a_part_that_is_not_there(tmp_path: Path, data: str) -> None:
    path, several = multilingual_checkpoint(tmp_path), multilingual_data(tmp_path / "data")
    for loaded, folder in ((load_model(unit_checkpoint(tmp_path), data), data), (load_model(path, several), several)):
        with pytest.raises(UserError, match=f"--data {folder} has no part nowhere"):
            loaded.sentences("nowhere")
