"""Tiny models of every kind, their checkpoints and data for them, for the tests of what linearizes layers."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY, FairseqEncoderDecoderModel
from growth_checkpoints import stock_model
from tiny_models import FAMILIES, build_tiny, dictionary_of, task_of

#: fairseq's four special entries, and w0 to w7; as in ``tiny_models.task_of``.
ENTRIES = 12

#: What is probed: each family, and fairseq's own transformer.
KINDS = (*FAMILIES, "transformer")

#: Sentences of the parts of the data.
SIZES = {"train": 60, "valid": 6, "test": 8}

TASK: dict[str, Any] = {
    "_name": "translation", "data": "gone", "source_lang": "src", "target_lang": "tgt", "train_subset": "train",
    "dataset_impl": None, "required_seq_len_multiple": 1, "left_pad_source": True, "left_pad_target": False,
}  # fmt: skip


def model_and_options(kind: str, **options: Any) -> tuple[FairseqEncoderDecoderModel, dict[str, Any]]:
    """A seeded model in evaluation mode, and the options that build it."""
    if kind == "transformer":
        model, args = stock_model(**options)
        return model, vars(args)
    return build_tiny(kind, **options), {"_name": kind, **FAMILIES[kind], **options}


def checkpoint_of(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint as a training leaves it whose data folder is gone."""
    model, values = model_and_options(kind, **options)
    return _saved(folder / name, model, values)


def _saved(path: Path, model: FairseqEncoderDecoderModel, options: dict[str, Any]) -> str:
    state = {
        "args": None,
        "cfg": {"model": options, "task": TASK},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
    }
    torch.save(state, path)
    return str(path)


def other_architecture(folder: Path, name: str) -> str:
    """A checkpoint of a model of fairseq's that is no Transformer."""
    args = Namespace(arch=name, _name=name, criterion="cross_entropy")
    ARCH_CONFIG_REGISTRY[name](args)
    for option in ("encoder_embed_dim", "decoder_embed_dim", "decoder_out_embed_dim", "encoder_hidden_size"):
        setattr(args, option, 8)
    if name == "lstm":
        args.decoder_hidden_size = 8
    else:
        args.encoder_layers = args.decoder_layers = "[(8, 3)] * 2"
    args.max_source_positions = args.max_target_positions = 32
    model = MODEL_REGISTRY[name].build_model(args, task_of())
    return _saved(folder / f"{name}.pt", model, vars(args))


def data_in(folder: Path, **subsets: list[str]) -> str:
    """What ``fairseq-preprocess`` makes: a folder with train, valid and test; the target is the source reversed."""
    folder.mkdir()
    dictionary = dictionary_of(ENTRIES)
    binarizer = VocabularyDatasetBinarizer(dictionary, append_eos=True)
    draw = random.Random(1)
    texts = {
        subset: [" ".join(f"w{draw.randrange(8)}" for _ in range(draw.randint(2, 6))) for _ in range(count)]
        for subset, count in SIZES.items()
    }
    for language in ("src", "tgt"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        for subset, sentences in (texts | subsets).items():
            text = folder / f"{subset}.{language}"
            lines = sentences if language == "src" else [" ".join(line.split()[::-1]) for line in sentences]
            text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            FileBinarizer.multiprocess_dataset(
                str(text), "mmap", binarizer, str(folder / f"{subset}.src-tgt.{language}"), vocab_size=ENTRIES,
                num_workers=1,
            )  # fmt: skip
            text.unlink()
    return str(folder)
