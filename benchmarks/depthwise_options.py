"""Command line of the benchmark ``depthwise.py``."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from depthwise_page import CELL, DECODING, TRAINING
from side_by_side import TYPES

from fairseq_depthwise.modules.fused_cell import KERNELS

#: Preset -> stock fairseq's architecture and ours.
PRESETS = {
    "wmt_en_de": ("transformer_wmt_en_de", "depthwise_lstm_transformer_wmt_en_de"),
    "wmt_en_de_big": ("transformer_wmt_en_de_big", "depthwise_lstm_transformer_wmt_en_de_big"),
    "wmt_en_fr_big": ("transformer_vaswani_wmt_en_fr_big", "depthwise_lstm_transformer_wmt_en_fr_big"),
    "iwslt_de_en": ("transformer_iwslt_de_en", "depthwise_lstm_transformer_iwslt_de_en"),
}


def whole_number(at_least: int) -> Callable[[str], int]:
    """A parser of one option's value."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
        return number

    return parse


def batch_sizes(text: str) -> list[int]:
    return [whole_number(1)(one) for one in text.split(",")]


def names_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A parser of a list of names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names

    return parse


def fairseq_options(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error}") from None


def file_to_write(text: str) -> Path:
    path = Path(text)
    if not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is in a folder that does not exist; give one that does")
    return path


def build_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--precisions", type=names_of(tuple(TYPES)), metavar="LIST", help="default: fp32,bf16 on cpu, bf16 on cuda")
    parts = (TRAINING, DECODING, CELL)
    add("--parts", type=names_of(parts), metavar="LIST", help=f"of {', '.join(parts)}; default: the first two")
    add("--cell", action="store_true", help="add the part cell; done on cuda if --parts is not given")
    add("--rounds", type=whole_number(2), default=9, metavar="N", help="rounds that count (default: %(default)s)")
    add("--warm-up", type=whole_number(0), default=2, metavar="N", help="rounds before, but at least one for each batch"
        " (default: %(default)s)")  # fmt: skip
    add("--preset", choices=PRESETS, default="wmt_en_de", help="pair of architectures (default: %(default)s)")
    add("--layers", type=whole_number(1), default=6, metavar="N", help="layers of each encoder and decoder"
        " (default: %(default)s)")  # fmt: skip
    example = 'fairseq options for %s, like --%s-overrides="%s"'
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS",
        help=example % ("both", "model", "--encoder-layers 2"))  # fmt: skip
    add("--stock-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="the same for stock fairseq's")
    add("--ours-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="the same for ours")
    add("--vocabulary", type=whole_number(16), default=32768, metavar="N", help="entries of the joined dictionary"
        " (default: %(default)s)")  # fmt: skip
    add("--train-tokens", type=whole_number(1), metavar="N", help="target tokens in a training batch, and positions in"
        " the part cell (default: 1200 on cpu, 16384 on cuda)")  # fmt: skip
    add("--decode-batches", type=batch_sizes, default=[1, 16, 64], metavar="LIST", help="sentences translated at once"
        " (default: 1,16,64)")  # fmt: skip
    add("--batches", type=whole_number(1), default=3, metavar="N", help="different batches, used by turns"
        " (default: %(default)s)")  # fmt: skip
    add("--kernels", type=names_of(KERNELS), default=["compile", "triton"], metavar="LIST", help="kernels in the part"
        " cell (default: compile,triton)")  # fmt: skip
    add("--memory", action=argparse.BooleanOptionalAction, default=True, help="measure peak memory")
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    add("--json", type=file_to_write, metavar="FILE", help="write all numbers here, after each result anew")
    # SIDE PART PRECISION CASE: measure one peak of memory in this process and print it.
    add("--child", nargs=4, help=argparse.SUPPRESS)
    return parser


def parse_options(description: str, given: Sequence[str]) -> argparse.Namespace:
    """The options, with the defaults that depend on the device."""
    parser = build_parser(description)
    options = parser.parse_args(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: PyTorch finds no GPU here, so cuda is not possible; give cpu")
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_cuda = options.device == "cuda"
    options.precisions = options.precisions or (["bf16"] if on_cuda else list(TYPES))
    options.train_tokens = options.train_tokens or (16384 if on_cuda else 1200)
    options.parts = options.parts or [TRAINING, DECODING, *([CELL] if on_cuda else [])]
    if options.cell and CELL not in options.parts:
        options.parts.append(CELL)
    return options


def command_of(given: Sequence[str], program: str = "depthwise.py") -> str:
    """What was typed, with the variables that change how fast a CPU is: threads, and what malloc keeps.

    Left out is where the raw numbers went, which nothing on the page depends on.
    """
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("MALLOC_", "OMP_"))]
    shown = []
    before = ""
    for one in given:
        if "--json" not in (before, one.partition("=")[0]):
            shown.append(one)
        before = one
    return shlex.join([*variables, "python", f"benchmarks/{program}", *shown])
