"""Speed and memory of the Multi-Unit Transformer by the number of units.

Training: all units of a layer in one batched computation beside a loop over them, and both beside one unit and stock
fairseq. Decoding: n units beside one unit and stock fairseq, and the encoder alone. Everything that is compared runs by
turns in one process, on the same sentences, through fairseq's own trainer and beam search. Progress goes to stderr, the
section of the page to stdout.

    python benchmarks/units.py --output docs/benchmarks.md
    python benchmarks/units.py --device cpu --units 1,4 --parts decoding --rounds 5
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import unit_loop  # noqa: F401  # registers mute_transformer_loop
from machine import machine, versions
from option_types import batch_sizes, command_of, fairseq_options, file_to_write, names_of, whole_number
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import (
    BEAM,
    TYPES,
    Batch,
    Decoding,
    Side,
    Training,
    alternate,
    corpus,
    decoding_batches,
    dictionary_of,
    on_device,
    parameter_count,
    peak_memory,
    training_batches,
)
from units_page import DECODING, ENCODER, LOOP, SEQUENTIAL, STOCK, TRAINING, page, units_name

#: The section of the page that this program writes.
SECTION = "units"

#: Stock fairseq has no relative positions; it is pre-norm like ours.
STOCK_SIDE = ("transformer", "--encoder-normalize-before", "--decoder-normalize-before")


class Comparison:
    """The models, their sentences, and the measurements.

    Args:
        options: see :func:`parse_options`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device: str = options.device
        self.dictionary = dictionary_of(options.vocabulary)
        largest = max(options.train_tokens // 10, *options.decode_batches)
        dataset = corpus(self.dictionary, max(3003, options.batches * largest))
        self.training = on_device(training_batches(dataset, options.train_tokens, options.batches), self.device)
        self.decoding = {
            size: on_device(decoding_batches(dataset, size, options.batches), self.device)
            for size in options.decode_batches
        }

    def side(self, name: str) -> Side:
        """The model of a name in the tables."""
        options = self.options
        dropouts = ("--activation-dropout", "0.1", *options.model_overrides)
        if name == STOCK:
            return Side(STOCK_SIDE[0], (*STOCK_SIDE[1:], *dropouts))
        units = name.rsplit(" ", 1)[-1]
        arch = "mute_transformer_loop" if LOOP in name else "mute_transformer"
        if SEQUENTIAL not in name:
            return Side(arch, ("--encoder-units", units, *dropouts, *options.unit_overrides))
        noises = ",".join(["identity", "swap", "mask", "disorder", "swap", "mask", "disorder", "swap"][: int(units)])
        # The criterion of the comparison knows no penalty.
        extra = ("--unit-sequential", "--unit-inputs", noises, "--unit-noise-rate", "1", "--permutation-penalty", "0")
        return Side(arch, ("--encoder-units", units, *extra, *dropouts, *options.unit_overrides))

    def measure_training(self, precision: str) -> Iterator[dict[str, Any]]:
        """For each number of units: the loop, the batched computation, one unit, and stock fairseq with one unit."""
        one = units_name(1)
        groups = [[STOCK, one], *([LOOP + units_name(n), units_name(n), one] for n in self.options.units if n > 1)]
        many = [n for n in self.options.units if n > 1]
        if many:
            # Another path through the code: every unit has inputs of its own.
            name = SEQUENTIAL + units_name(4 if 4 in many else many[-1])
            groups.append([LOOP + name, name, one])
        for names in groups:
            works = {name: Training(self.side(name), self.dictionary, self.device, precision) for name in names}
            seconds = self.alternate(
                {name: _on(self.training, work) for name, work in works.items()}, f"{TRAINING} {precision}"
            )
            works.clear()
            gc.collect()  # fairseq's trainer is full of cycles, and the next models need the memory
            tokens = [
                int(self.training[number % len(self.training)]["ntokens"]) for number in range(self.options.rounds)
            ]
            yield {"part": TRAINING, "precision": precision, "seconds": seconds, "amounts": tokens, "memory": {}}

    def measure_decoding(self, precision: str) -> Iterator[dict[str, Any]]:
        """For each batch size: stock fairseq, each number of units, and the encoder of one unit by itself."""
        names = [STOCK, *(units_name(n) for n in sorted({1, *self.options.units}))]
        works = {name: Decoding(self.side(name), self.dictionary, self.device, precision) for name in names}
        for size, batches in self.decoding.items():
            timed: dict[str, Callable[[int], object]] = {name: _on(batches, work) for name, work in works.items()}
            timed[ENCODER] = _on(batches, _Encoding(works[units_name(1)]))
            seconds = self.alternate(timed, f"{DECODING} {precision}, {size} at once")
            sentences = [int(batches[number % len(batches)]["nsentences"]) for number in range(self.options.rounds)]
            yield {
                "part": DECODING, "precision": precision, "batch": size, "seconds": seconds, "amounts": sentences,
                "memory": {},
            }  # fmt: skip

    def add_memory(self, result: dict[str, Any]) -> None:
        """On a GPU, where PyTorch counts: the peak of each model alone, building it included."""
        for name in result["seconds"]:
            if self.device != "cuda" or name == ENCODER:
                continue

            def build(name: str = name) -> Callable[[], object]:
                if result["part"] == TRAINING:
                    work: Any = Training(self.side(name), self.dictionary, self.device, result["precision"])
                    return lambda: work(self.training[-1])
                work = Decoding(self.side(name), self.dictionary, self.device, result["precision"])
                return lambda: work(self.decoding[result["batch"]][-1])

            result["memory"][name] = peak_memory(build, self.device)

    def alternate(self, works: Mapping[str, Callable[[int], object]], title: str) -> dict[str, list[float]]:
        rounds = self.options.rounds

        def say(number: int, seconds: dict[str, float]) -> None:
            which = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
            tell(f"{title}, {which}: " + ", ".join(f"{name} {taken:.4f} s" for name, taken in seconds.items()))

        warm_up = max(self.options.warm_up, self.options.batches)
        return alternate(works, rounds=rounds, warm_up=warm_up, device=self.device, say=say)

    def setup(self) -> dict[str, Any]:
        """What is compared and where, for the head of the page."""
        accelerator = f", {torch.cuda.get_device_name()}" if self.device == "cuda" else ""
        names = [STOCK, *(units_name(n) for n in sorted({1, *self.options.units}))]
        return {
            "device": self.device,
            "machine": machine() + accelerator,
            "threads": torch.get_num_threads(),
            "versions": versions("fairseq", "fairseq-depthwise"),
            "vocabulary": self.options.vocabulary,
            "rounds": self.options.rounds,
            "beam": BEAM,
            "tokens": [int(batch["ntokens"]) for batch in self.training],
            "parameters": {name: parameter_count(self.side(name), self.dictionary) for name in names},
            "options": " ".join([*self.options.model_overrides, *self.options.unit_overrides]),
        }


class _Encoding:
    """The encoder's part of a decoding."""

    def __init__(self, decoding: Decoding) -> None:
        self.encoder = decoding.model.encoder

    def __call__(self, batch: Batch) -> None:
        with torch.no_grad():
            self.encoder(batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"])


def _on(batches: Sequence[Batch], work: Callable[[Batch], object]) -> Callable[[int], object]:
    return lambda number: work(batches[number % len(batches)])


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """The options, with the defaults that depend on the device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--precisions", type=names_of(tuple(TYPES)), metavar="LIST", help="default: fp32 on cpu, bf16 on cuda")
    parts = (TRAINING, DECODING)
    add("--parts", type=names_of(parts), default=list(parts), metavar="LIST", help=f"of {', '.join(parts)}")
    add("--units", type=batch_sizes, default=[1, 2, 4, 6], metavar="LIST", help="numbers of units (default: 1,2,4,6)")
    add("--rounds", type=whole_number(2), default=9, metavar="N", help="rounds that count (default: %(default)s)")
    add("--warm-up", type=whole_number(0), default=2, metavar="N", help="rounds before, but at least one for each batch"
        " (default: %(default)s)")  # fmt: skip
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models")
    add("--unit-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="the same for ours")
    add("--vocabulary", type=whole_number(16), default=32768, metavar="N", help="entries of the joined dictionary"
        " (default: %(default)s)")  # fmt: skip
    add("--train-tokens", type=whole_number(1), metavar="N", help="target tokens of a training batch (default: 1200 on"
        " cpu, 16384 on cuda)")  # fmt: skip
    add("--decode-batches", type=batch_sizes, default=[1, 30], metavar="LIST", help="sentences translated at once"
        " (default: 1,30; the paper's is 30)")  # fmt: skip
    add("--batches", type=whole_number(1), default=3, metavar="N", help="different batches, used by turns"
        " (default: %(default)s)")  # fmt: skip
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    add("--json", type=file_to_write, metavar="FILE", help="write all numbers here, after each result anew")
    options = parser.parse_args(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: PyTorch finds no GPU here, so cuda is not possible; give cpu")
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options.precisions = options.precisions or (["bf16"] if options.device == "cuda" else ["fp32"])
    options.train_tokens = options.train_tokens or (16384 if options.device == "cuda" else 1200)
    if max(options.units) > 8:
        parser.error(f"argument --units: {max(options.units)} is more than the 8 units that a layer can have")
    return options


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, print the section and write the files.

    Raises:
        UserError: a model cannot be built or run with the options given, or a file not written.
    """
    comparison = Comparison(options)
    setup = {**comparison.setup(), "command": command_of(given, "units.py")}
    results: list[dict[str, Any]] = []
    measures = {TRAINING: comparison.measure_training, DECODING: comparison.measure_decoding}
    for precision in options.precisions:
        for part in options.parts:
            for result in measures[part](precision):
                comparison.add_memory(result)
                results.append(result)
                if options.json:
                    write_json(options.json, {"setup": setup, "results": results})
    text = page(setup, results)
    print(section(SECTION, text), end="")
    if options.output:
        write_section(options.output, SECTION, text)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options(given)
    return run_program("units", lambda: run(options, given))


if __name__ == "__main__":
    sys.exit(main())
