"""A checkpoint or exported folder of a stranger's: nothing in it is fetched, looked up in the environment, or run."""

from __future__ import annotations

import json
import shutil
import socket
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_values import FORGED_ARRAY
from probe_checkpoints import checkpoint_of
from tiny_checkpoints import TASK

ADDRESS = "http://127.0.0.1:9/"
SECRET = "${oc.env:SECRET}"

#: How text becomes tokens, as a stranger may record it.
RECORDED: dict[str, dict[str, Any]] = {
    "fetched by name": {"bpe": {"_name": "gpt2"}},
    "fetched by name alone": {"bpe": "gpt2"},
    "fetched from a hub": {"bpe": {"_name": "bert", "bpe_cased": True}},
    "an address": {"bpe": {"_name": "gpt2", "gpt2_encoder_json": ADDRESS, "gpt2_vocab_bpe": ADDRESS}},
    "an address of codes": {"bpe": {"_name": "fastbpe", "bpe_codes": ADDRESS}},
    "a secret": {"bpe": {"_name": "subword_nmt", "bpe_codes": SECRET}},
    "a secret in an address": {"bpe": {"_name": "gpt2", "gpt2_encoder_json": ADDRESS + SECRET}},
    "a secret in a secret": {"bpe": {"_name": "subword_nmt", "bpe_codes": "${oc.env:${oc.env:SECRET}}"}},
    "a secret for the tokenizer": {"tokenizer": {"_name": "moses", "moses_no_escape": SECRET}},
    "no such file": {"bpe": {"_name": "sentencepiece", "sentencepiece_model": "file:///etc/passwd"}},
}

#: Options of other parts.
OPTIONS: dict[str, dict[str, Any]] = {
    "a secret of the task": {"task": {**TASK, "source_lang": SECRET}},
    "a secret in options": {"task": Namespace(**{**TASK, "more": [SECRET]})},
    "an address of the task": {"task": {**TASK, "data": ADDRESS}},
    "orders to a terminal": {"task": {**TASK, "_name": "\x1b[2J\n"}},
    "a forged array": {"task": Namespace(**{**TASK, "more": FORGED_ARRAY})},
}


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where something was to be fetched from."""
    tried: list[Any] = []

    def refuse(*given: Any, **named: Any) -> None:
        tried.append(given)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("SECRET", "a-secret")
    return tried


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(checkpoint_of(tmp_path_factory.mktemp("trained"), "sdt_transformer"))


@pytest.fixture(scope="module")
def exported(checkpoint: Path, data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fairseq_depthwise import cli

    folder = tmp_path_factory.mktemp("exported") / "model"
    assert cli.main(["export", str(checkpoint), str(folder), "--data", data]) == 0
    return folder


@pytest.mark.parametrize("kind", [*RECORDED, *OPTIONS])
def test_nothing_that_a_checkpoint_records_is_fetched(
    kind: str, checkpoint: Path, data: str, requests: list[Any], tmp_path: Path, refusal: Callable[..., str]
) -> None:
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"].update({**RECORDED, **OPTIONS}[kind])
    torch.save(state, tmp_path / "model.pt")
    words: list[list[object]] = [["translate", tmp_path / "model.pt", "--data", data, "--cpu"]]
    if kind in OPTIONS:  # otherwise the export is made, without the subwords
        words.append(["export", tmp_path / "model.pt", tmp_path / "out", "--data", data])
    for command in words:
        assert "a-secret" not in refusal(*command)
    assert requests == []


@pytest.mark.parametrize(
    "text",
    [
        *({"tokenizer": None, "bpe": None} | flat for flat in (
            {"bpe": "gpt2"}, {"bpe": "bert"},
            {"bpe": "gpt2", "gpt2_encoder_json": ADDRESS, "gpt2_vocab_bpe": ADDRESS},
            {"bpe": "fastbpe", "bpe_codes": ADDRESS}, {"bpe": "subword_nmt", "bpe_codes": "../bpe.codes"},
            {"bpe": "sentencepiece", "sentencepiece_model": "/etc/passwd"}, {"bpe": "subword_nmt", "bpe_codes": SECRET},
            {"tokenizer": "moses", "moses_no_escape": SECRET}, {"tokenizer": ["moses"]}, {"bpe": {"_name": "gpt2"}},
            {SECRET: 1},
        )),
        [SECRET],
        "gpt2",
    ],
    ids=str,
)  # fmt: skip
def test_nothing_that_an_exported_folder_names_is_fetched(
    text: Any, exported: Path, requests: list[Any], tmp_path: Path, refusal: Callable[..., str]
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "text": text}), encoding="utf-8")
    assert "a-secret" not in refusal("translate", folder)
    assert requests == []
