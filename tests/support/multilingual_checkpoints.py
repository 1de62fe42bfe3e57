"""A tiny model that translates in several directions, its checkpoint and dictionaries, for the tests of decoding."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from tiny_checkpoints import ENTRIES, saved
from tiny_models import FAMILIES, dictionary_of, task_of

LANGUAGES = ["en", "l0", "l1"]
PAIRS = ["en-l0", "l0-en", "en-l1"]

OPTIONS = ["--task", "translation_multi_simple_epoch", "--lang-pairs", ",".join(PAIRS), "--langs", ",".join(LANGUAGES)]


def multilingual_data(folder: Path) -> str:
    """A folder with the languages' dictionaries, which are the same."""
    folder.mkdir()
    for language in LANGUAGES:
        dictionary_of(ENTRIES).save(str(folder / f"dict.{language}.txt"))
    return str(folder)


def multilingual_checkpoint(folder: Path, *tokens: str) -> str:
    """A checkpoint as a training leaves it; ``tokens``: how languages are named, as ``--encoder-langtok tgt``."""
    parser = ArgumentParser()
    TranslationMultiSimpleEpochTask.add_args(parser)
    task, _ = parser.parse_known_args(["gone", *OPTIONS[2:], *tokens])
    task.task = task._name = OPTIONS[1]
    task.seed = 1
    task.langtoks = {"main": (task.encoder_langtok, "tgt" if task.decoder_langtok else None)}  # as fairseq completes it
    name = "sdt_transformer"
    options: dict[str, Any] = {**FAMILIES[name], "encoder_layers": 2, "decoder_layers": 1}
    torch.manual_seed(4)
    size = ENTRIES + len(LANGUAGES)
    model = MODEL_REGISTRY[name].build_model(SimpleNamespace(**options), task_of(size, size))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    path = folder / "checkpoint_best.pt"
    return saved(path, model, {"_name": name, **options}, task=task, tokenizer=None, bpe=None)
