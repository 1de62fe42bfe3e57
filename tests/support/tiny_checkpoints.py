"""Checkpoints of tiny models, and data for them, for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import FAMILIES, build_tiny, dictionary_of

#: fairseq's four special entries, and w0 to w7; as in ``tiny_models.task_of``.
ENTRIES = 12

TASK: dict[str, Any] = {
    "_name": "translation", "data": "gone", "source_lang": "src", "target_lang": "tgt", "train_subset": "train",
    "dataset_impl": None, "required_seq_len_multiple": 1, "left_pad_source": True, "left_pad_target": False,
}  # fmt: skip


def saved(path: Path, model: FairseqEncoderDecoderModel, options: Mapping[str, Any], **parts: Any) -> str:
    """A checkpoint as a training leaves it whose data folder is gone; ``parts`` are groups of options."""
    state = {
        "args": None,
        "cfg": {"model": options, "task": TASK, **parts},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }
    torch.save(state, path)
    return str(path)


def binarized(folder: Path, texts: Mapping[str, Mapping[str, Sequence[str]]], entries: int = ENTRIES) -> str:
    """What ``fairseq-preprocess`` makes of the sentences of each subset and language: a folder."""
    folder.mkdir()
    dictionary = dictionary_of(entries)
    binarizer = VocabularyDatasetBinarizer(dictionary, append_eos=True)
    for language in ("src", "tgt"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        for subset, sides in texts.items():
            text = folder / f"{subset}.{language}"
            text.write_text("".join(f"{line}\n" for line in sides[language]), encoding="utf-8")
            FileBinarizer.multiprocess_dataset(
                str(text), "mmap", binarizer, str(folder / f"{subset}.src-tgt.{language}"), vocab_size=entries,
                num_workers=1,
            )  # fmt: skip
            text.unlink()
    return str(folder)


def tiny_checkpoint(
    name: str = "sdt_transformer",
    *,
    extra: dict[str, Any] | None = None,
    parts: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], FairseqEncoderDecoderModel]:
    """A checkpoint as fairseq writes it in the middle of the third epoch, and the model in it.

    ``extra`` is in place of its ``extra_state``, ``parts`` of groups of options.
    """
    model = build_tiny(name, **options)
    cfg = {
        "model": {"_name": name, **FAMILIES[name], **options},
        "task": {"_name": "translation"},
        "lr_scheduler": {"_name": "inverse_sqrt_restart", "warmup_updates": 4, "lr": [0.002]},
        "checkpoint": {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False},
    }
    state = {
        "args": None,
        "cfg": {**cfg, **(parts or {})},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 1200, "lr_scheduler_state": {"best": None, "restarts": [400, 800]}}],
        "last_optimizer_state": {"state": {0: {"step": 1200}}, "param_groups": [{"params": [0]}]},
        "extra_state": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 7}, "val_loss": 4.5, "best": 4.25}
        if extra is None
        else extra,
    }
    return state, model
