"""Beam search of our families in float32, bfloat16 and with linear layers in 8 bits: the table of docs/decoding.md.

    OMP_NUM_THREADS=1 python benchmarks/int8.py
    OMP_NUM_THREADS=2 python benchmarks/int8.py --presets depthwise_lstm_transformer_wmt_en_de --batches 1,16

The models are untrained and translate the same random sentences to translations of the same length, turn about.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from fairseq.data import Dictionary
from side_by_side import BEAM, Decoding, Side, alternate, corpus, decoding_batches, dictionary_of

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_compat.process import keep_freed_memory
from fairseq_depthwise import tables
from fairseq_depthwise.serving.int8 import quantize

PRESETS = ("depthwise_lstm_transformer_wmt_en_de", "sdt_transformer_wmt_en_de", "mute_transformer_wmt_en_de")
PRECISIONS = ("fp32", "bf16", "int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join(PRESETS), help="architectures (default: %(default)s)")
    parser.add_argument("--batches", default="1,16,64", help="sentences translated at once (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=32768, help="of both languages (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="that count; one is before them (default: %(default)s)")
    options = parser.parse_args()
    keep_freed_memory()  # as every command that computes on a CPU
    rows = [["model", "threads", "sentences at once", *(f"{one}, sentences/s" for one in PRECISIONS), "int8 : fp32"]]
    dictionary = dictionary_of(options.vocabulary)
    sentences = corpus(dictionary, 640)
    for preset in options.presets.split(","):
        works = {precision: decoding(preset, dictionary, precision) for precision in PRECISIONS}
        for size in map(int, options.batches.split(",")):
            (batch,) = decoding_batches(sentences, size, 1)
            seconds = alternate(
                {precision: lambda _, work=work, batch=batch: work(batch) for precision, work in works.items()},
                rounds=options.rounds, warm_up=1, device="cpu",
                say=lambda number, taken: print(number, taken, file=sys.stderr),
            )  # fmt: skip
            speeds = [size / statistics.median(seconds[precision]) for precision in PRECISIONS]
            numbers = [*(f"{speed:.2f}" for speed in speeds), f"{speeds[-1] / speeds[0]:.2f}"]
            rows.append([preset, str(torch.get_num_threads()), str(size), *numbers])
    print(f"PyTorch {torch.__version__}, beam {BEAM}\n\n{tables.markdown(rows)}", end="")


def decoding(preset: str, dictionary: Dictionary, precision: str) -> Decoding:
    """A model ready for translation."""
    work = Decoding(Side(preset), dictionary, "cpu", "bf16" if precision == "bf16" else "fp32")
    if precision == "int8":
        print(f"{preset}: {quantize([work.model])}", file=sys.stderr)
    return work


if __name__ == "__main__":
    main()
