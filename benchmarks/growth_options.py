"""Command line of the benchmark ``growth.py``: one model and its sizes for each device."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import torch
from growth_schedules import BLOCKS, DEEP, SCHEDULES
from option_types import file_to_write, names_of, whole_number

SAVING, PROJECTION, STEP, LOSS = "saving", "projection", "step", "time-to-loss"
PARTS = (SAVING, PROJECTION, STEP, LOSS)

#: Numbers: their defaults on cpu and on cuda, the least that is possible, and what they mean.
NUMBERS = {
    "seed": (1, 1, 1, "seed of every training, and so of the order of batches"),
    "merges": (2000, 32000, 1, "subword merges; as many as keep the output projection's share of the paper's model"),
    "width": (64, 512, 2, "width; hidden nets are four times as wide"),
    "heads": (4, 8, 1, "attention heads"),
    "block-size": (3, 6, 1, f"layers of a block; the deepest encoder has {BLOCKS} blocks"),
    "decoder-layers": (3, 6, 1, "layers of the decoder"),
    "max-tokens": (2000, 8192, 1, "tokens of a batch"),
    "saving-updates": (210, 2100, 21, "saving: updates of a training"),
    "probe-warm-up": (5, 20, 1, "saving: first updates of a short run that do not count"),
    "probe-updates": (15, 80, 1, "saving: updates of a short run that count"),
    "rounds": (3, 3, 1, "saving and step: rounds"),
    "steps": (5, 30, 2, "projection: steps at each depth"),
    "train-tokens": (600, 8192, 1, "projection: target tokens of a batch"),
    "vocabulary": (34000, 34000, 16, "projection and step: entries of the dictionary"),
    "base-width": (512, 512, 2, "projection and step: width; hidden nets are four times as wide"),
    "base-heads": (8, 8, 1, "projection and step: attention heads"),
    "base-block-size": (6, 6, 1, "projection and step: layers of a block"),
    "base-decoder-layers": (6, 6, 1, "projection and step: layers of the decoder"),
    "loss-updates": (840, 8400, 21, "time-to-loss: updates of a training"),
    "validations": (21, 42, 1, "time-to-loss: validations of a training"),
}

#: The options that each part's results depend on. Further rounds and schedules are added to those there are.
TEXT = ("corpus", "languages", "merges")
_SCALED = (*TEXT, "threads", "device", "seed", "learning_rate", "width", "heads", "block_size", "decoder_layers",
           "max_tokens")  # fmt: skip
_BASE = ("threads", "device", "vocabulary", "base_width", "base_heads", "base_block_size", "base_decoder_layers")
SETTINGS = {
    SAVING: (*_SCALED, "saving_updates", "probe_warm_up", "probe_updates"),
    PROJECTION: (*_BASE, "train_tokens", "steps"),
    STEP: (*TEXT, *_BASE, "seed", "learning_rate"),
    LOSS: (*_SCALED, "loss_updates", "validations"),
}


def build_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    add, shown = parser.add_argument, "%(default)s"
    add("--corpus", type=Path, required=True, help="folder with train, valid and test files of two languages")
    add("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    add("--parts", type=names_of(PARTS), default=list(PARTS), metavar="LIST", help=f"of {', '.join(PARTS)}; default: "
        "all")  # fmt: skip
    add("--schedules", type=names_of(tuple(SCHEDULES)), default=list(SCHEDULES), metavar="LIST",
        help=f"time-to-loss: of {', '.join(SCHEDULES)}; {DEEP} is always there; default: all")  # fmt: skip
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--threads", type=whole_number(1), default=1, metavar="N", help=f"threads of PyTorch (default: {shown})")
    add("--learning-rate", type=float, default=2e-3, help=f"peak learning rate (default: {shown}, the paper's)")
    add("--work", type=Path, default=Path("runs/growth"), help=f"folder to work in (default: {shown})")
    add("--output", type=file_to_write, default=Path("docs/benchmarks.md"), help="page whose section is written "
        f"(default: {shown})")  # fmt: skip
    for name, (on_cpu, on_cuda, least, meaning) in NUMBERS.items():
        default = f"default: {on_cpu}" + (f", on cuda {on_cuda}" if on_cuda != on_cpu else "")
        add(f"--{name}", type=whole_number(least), metavar="N", help=f"{meaning} ({default})")
    return parser


def parse_options(description: str, given: list[str] | None) -> argparse.Namespace:
    """The options, with the defaults that depend on the device."""
    parser = build_parser(description)
    options = parser.parse_args(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: PyTorch finds no GPU here, so cuda is not possible; give cpu")
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name, default in defaults(options.device).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    if options.loss_updates < 2 * options.validations:
        parser.error(f"--loss-updates {options.loss_updates} has to be at least two for each of --validations")
    options.schedules = [name for name in SCHEDULES if name == DEEP or name in options.schedules]
    return options


def defaults(device: str) -> dict[str, int]:
    """The numbers on a device, by the names of their attributes."""
    return {name.replace("-", "_"): one[device == "cuda"] for name, one in NUMBERS.items()}


def made_by(part: str, options: argparse.Namespace) -> str:
    """The command line of this program for one part, without the folders."""
    usual: dict[str, Any] = {"source": None, "threads": 1, "learning_rate": 2e-3, **defaults(options.device)}
    relevant = {"source", *SETTINGS[part], *(("rounds",) if part in (SAVING, STEP) else ())}
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(str(getattr(options, name)))}"
        for name, default in usual.items()
        if name in relevant and getattr(options, name) != default
    ]
    corpus = shlex.quote(options.corpus.resolve().name)
    return " ".join([f'python benchmarks/growth.py --corpus "$CORPORA"/{corpus} --parts {part}', *words])
