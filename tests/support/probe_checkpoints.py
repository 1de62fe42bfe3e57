"""Tiny models of every kind, their checkpoints and data for them, for the tests of what linearizes layers."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY, FairseqEncoderDecoderModel
from growth_checkpoints import stock_model
from tiny_checkpoints import binarized, saved
from tiny_models import FAMILIES, build_tiny, task_of

#: What is probed: each family, and fairseq's own transformer.
KINDS = (*FAMILIES, "transformer")

#: Sentences of the parts of the data.
SIZES = {"train": 60, "valid": 6, "test": 8}


def model_and_options(kind: str, **options: Any) -> tuple[FairseqEncoderDecoderModel, dict[str, Any]]:
    """A seeded model in evaluation mode, and the options that build it."""
    if kind == "transformer":
        model, args = stock_model(**options)
        return model, vars(args)
    return build_tiny(kind, **options), {"_name": kind, **FAMILIES[kind], **options}


def checkpoint_of(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint as a training leaves it whose data folder is gone."""
    model, values = model_and_options(kind, **options)
    return saved(folder / name, model, values)


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
    return saved(folder / f"{name}.pt", model, vars(args))


def data_in(folder: Path, **subsets: list[str]) -> str:
    """What ``fairseq-preprocess`` makes: a folder with train, valid and test; the target is the source reversed."""
    draw = random.Random(1)
    texts = {
        subset: [" ".join(f"w{draw.randrange(8)}" for _ in range(draw.randint(2, 6))) for _ in range(count)]
        for subset, count in SIZES.items()
    }
    return binarized(
        folder,
        {
            subset: {"src": lines, "tgt": [" ".join(line.split()[::-1]) for line in lines]}
            for subset, lines in (texts | subsets).items()
        },
    )
