"""Speed and memory of the depth-wise LSTM Transformer beside stock fairseq's Transformer of the same depth.

Both are run by turns in one process, on the same sentences, through fairseq's own trainer and beam search; ratios are
taken between neighbouring measurements, so that whatever else the machine is doing weighs on both alike. On a GPU the
kernels of the cell alone are compared with its plain form as well. Progress goes to stderr, the section of the page to
stdout.

    python benchmarks/depthwise.py --output docs/benchmarks.md
    python benchmarks/depthwise.py --device cpu --precisions bf16 --parts training --rounds 5
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from depthwise_cell import CellPasses
from depthwise_options import PRESETS, command_of, parse_options
from depthwise_page import CELL, DECODING, PLAIN, TRAINING, Result, page
from machine import machine
from page_sections import section, write_section
from side_by_side import (
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

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.files import written_whole
from fairseq_compat.versions import installed_version

STOCK, OURS = "stock", "ours"

#: The section of the page that this program writes.
SECTION = "depthwise"

WORKS: dict[str, type[Training] | type[Decoding]] = {TRAINING: Training, DECODING: Decoding}


class Notices(logging.Handler):
    """Collects what the plugin logs, above all that a kernel is not possible here, and sentences of this program."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []

    def add(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)
            tell(sentence)

    def emit(self, record: logging.LogRecord) -> None:
        self.add(record.getMessage())


class Comparison:
    """The two sides, their sentences, and the measurements of both.

    Args:
        options: see ``depthwise_options``.
        given: the command line that they come from.
        notices: gets a sentence about whatever runs otherwise than asked for.
    """

    def __init__(self, options: argparse.Namespace, given: Sequence[str], notices: Notices) -> None:
        self.options = options
        self.given = given
        self.notices = notices
        self.device: str = options.device
        layers = str(options.layers)
        both = ("--encoder-layers", layers, "--decoder-layers", layers, *options.model_overrides)
        stock, ours = PRESETS[options.preset]
        self.sides = {
            STOCK: Side(stock, (*both, *options.stock_overrides)),
            OURS: Side(ours, (*both, *options.ours_overrides)),
        }
        self.dictionary = dictionary_of(options.vocabulary)
        # As many as newstest has, or else enough for every batch to have its own.
        largest = max(options.train_tokens // 10, *options.decode_batches)
        dataset = corpus(self.dictionary, max(3003, options.batches * largest))
        self.training_batches = training_batches(dataset, options.train_tokens, options.batches)
        self.decoding_batches = {
            size: decoding_batches(dataset, size, options.batches) for size in options.decode_batches
        }

    def batches(self, part: str, case: str) -> list[Batch]:
        """The batches of a part, on the device."""
        chosen = self.training_batches if part == TRAINING else self.decoding_batches[int(case)]
        return on_device(chosen, self.device)

    def works(self, part: str, precision: str) -> dict[str, Any]:
        """Both sides' models, ready for a part."""
        return {name: self.work(part, name, precision) for name in self.sides}

    def work(self, part: str, name: str, precision: str) -> Training | Decoding:
        return WORKS[part](self.sides[name], self.dictionary, self.device, precision)

    def results(self) -> Iterator[Result]:
        """Measure everything that was asked for."""
        for precision in self.options.precisions:
            if TRAINING in self.options.parts:
                yield from self.compare(TRAINING, precision, [""])
            if DECODING in self.options.parts:
                yield from self.compare(DECODING, precision, [str(size) for size in self.options.decode_batches])
            if CELL in self.options.parts:
                yield from self.compare_kernels(precision)

    def compare(self, part: str, precision: str, cases: Sequence[str]) -> Iterator[Result]:
        """Measure both sides in one part; one result for each case."""
        works = self.works(part, precision)
        results = [self.compare_case(works, part, precision, case) for case in cases]
        works.clear()
        gc.collect()  # fairseq's trainer is full of cycles, and the next part needs the memory
        for result in results:
            if self.options.memory:
                result.memory = {name: self.peak(name, part, precision, result.case) for name in self.sides}
            yield result

    def compare_case(self, works: Mapping[str, Any], part: str, precision: str, case: str) -> Result:
        """Measure both sides on the batches of one case."""
        batches = self.batches(part, case)

        def on_batch(work: Callable[[Batch], None]) -> Callable[[int], None]:
            return lambda number: work(batches[number % len(batches)])

        rounds = self.options.rounds
        seconds = self.alternate(
            {name: on_batch(work) for name, work in works.items()},
            title=title_of(part, precision, case),
            warm_up=max(self.options.warm_up, len(batches)),  # every shape has been seen before it is measured
        )
        count = "ntokens" if part == TRAINING else "nsentences"
        amounts = [int(batches[number % len(batches)][count]) for number in range(rounds)]
        steps = {name: work.steps[-rounds:] for name, work in works.items() if part == DECODING}
        return Result(part, self.device, precision, case, seconds, amounts, steps=steps)

    def compare_kernels(self, precision: str) -> Iterator[Result]:
        """Measure the cell alone with each kernel, all in the same rounds."""
        passes: dict[str, CellPasses] = {}
        # "eager" among the kernels is the plain form a second time and shows the noise of the comparison.
        for name, kernel in {PLAIN: "eager", **{kernel: kernel for kernel in self.options.kernels}}.items():
            candidate = CellPasses(
                kernel,
                model=self.sides[OURS].configuration(self.device).model,
                tokens=self.options.train_tokens,
                device=self.device,
                precision=precision,
            )
            candidate()
            if candidate.fell_back:
                self.notices.add(f"the cell's kernel {kernel} was not measured: it does not work here")
            else:
                passes[name] = candidate
        kernels = [name for name in passes if name != PLAIN]
        if not kernels:
            return
        seconds = self.alternate(passes, title=f"cell {precision}", warm_up=self.options.warm_up)
        # The peak of this process says nothing on the CPU, see peak_memory.
        measured = passes if self.device == "cuda" and self.options.memory else {}
        memory = {name: _peak_of_ready(ready, self.device) for name, ready in measured.items()}
        for kernel in kernels:
            yield Result(
                CELL, self.device, precision, kernel,
                seconds={name: seconds[name] for name in (PLAIN, kernel)},
                amounts=[passes[PLAIN].passes] * self.options.rounds,
                memory={name: memory[name] for name in (PLAIN, kernel) if name in memory},
            )  # fmt: skip

    def alternate(
        self, works: Mapping[str, Callable[[int], object]], *, title: str, warm_up: int
    ) -> dict[str, list[float]]:
        """:func:`side_by_side.alternate` with a line of progress for each round."""
        rounds = self.options.rounds

        def say(number: int, seconds: dict[str, float]) -> None:
            which = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
            tell(f"{title}, {which}: " + ", ".join(f"{name} {taken:.4f} s" for name, taken in seconds.items()))

        return alternate(works, rounds=rounds, warm_up=warm_up, device=self.device, say=say)

    def peak(self, name: str, part: str, precision: str, case: str) -> int:
        """Bytes that one side needs at its peak; on the CPU measured in a process of its own."""
        if self.device == "cuda":
            peak = self.peak_here(name, part, precision, case)
        else:
            child = [name, part, precision, case or "0"]
            command = [sys.executable, __file__, *self.given, "--child", *child]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
                raise UserError(
                    f"the run that measures memory ({' '.join(child)}) ended with {done.returncode}: {last}"
                )
            peak = int(done.stdout.split()[-1])
        tell(f"{title_of(part, precision, case)}, peak memory: {name} {peak / 2**20:.0f} MiB")
        return peak

    def peak_here(self, name: str, part: str, precision: str, case: str) -> int:
        """Bytes that one side needs at its peak, with the batch of the longest sentences."""
        longest = self.batches(part, case)[-1]

        def build() -> Callable[[], object]:
            work = self.work(part, name, precision)
            return lambda: work(longest)

        return peak_memory(build, self.device)


def title_of(*words: str) -> str:
    return " ".join(word for word in words if word)


def _peak_of_ready(work: Callable[[], object], device: str) -> int:
    """Bytes at the peak of calling something, over what it holds between calls."""
    return peak_memory(lambda: work, device)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def setup_of(comparison: Comparison) -> dict[str, Any]:
    """What is compared and where, for the head of the page and for JSON.

    Raises:
        UserError: a side cannot be built with the options given.
    """
    options = comparison.options
    accelerator = f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    found = {name: installed_version(name) for name in ("fairseq", "fairseq-depthwise", "triton")}
    versions = {"Python": platform.python_version(), "PyTorch": torch.__version__, **found}
    sides = {
        name: {
            "arch": side.arch,
            "options": list(side.options),
            "parameters": parameter_count(side, comparison.dictionary),
        }
        for name, side in comparison.sides.items()
    }
    return {
        "command": command_of(comparison.given),
        "machine": machine() + accelerator,
        "threads": torch.get_num_threads(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "vocabulary": options.vocabulary,
        "rounds": options.rounds,
        "warm_up": options.warm_up,
        "batches": list(_batches_in_words(comparison)),
        "sides": sides,
    }


def _batches_in_words(comparison: Comparison) -> Iterator[str]:
    pad = comparison.dictionary.pad()

    def padding(batches: Sequence[Batch], tensors: Callable[[Batch], torch.Tensor]) -> str:
        padded = torch.cat([tensors(batch).eq(pad).flatten() for batch in batches])
        return f"{100 * padded.float().mean():.0f} %"

    if TRAINING in comparison.options.parts:
        batches = comparison.training_batches
        tokens = ", ".join(str(batch["ntokens"]) for batch in batches)
        sentences = ", ".join(str(batch["nsentences"]) for batch in batches)
        yield (
            f"Training: batches of {tokens} target tokens ({sentences} sentences) by turns; padding is "
            f"{padding(batches, lambda batch: batch['net_input']['src_tokens'])} of the sources, "
            f"{padding(batches, lambda batch: batch['target'])} of the targets."
        )
    if DECODING in comparison.options.parts:
        for size, batches in comparison.decoding_batches.items():
            widths = ", ".join(str(batch["net_input"]["src_tokens"].size(1)) for batch in batches)
            yield f"Decoding {size} at once: batches as wide as {widths} by turns."


def run(comparison: Comparison) -> None:
    """Measure, print the page and write the files.

    Raises:
        UserError: a model cannot be built or run with the options given, or a file not written.
    """
    options, notices = comparison.options, comparison.notices.sentences
    setup = setup_of(comparison)
    results: list[Result] = []
    try:
        for result in comparison.results():
            results.append(result)
            if options.json:
                numbers = {"setup": setup, "results": [one.as_numbers() for one in results], "notices": notices}
                write(options.json, json.dumps(numbers, indent=1))
    finally:
        text = page(setup, results, notices)
        if results:  # also those of a run that is stopped
            print(section(SECTION, text), end="")
    if options.output:
        write_section(options.output, SECTION, text)


def write(path: Path, text: str) -> None:
    with written_whole(path) as file:
        file.write(text.encode())


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options((__doc__ or "").splitlines()[0], given)
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it has much to say about every model it builds
    notices = Notices()
    plugin = logging.getLogger("fairseq_depthwise")
    plugin.addHandler(notices)
    plugin.setLevel(logging.INFO)
    plugin.propagate = False
    try:
        comparison = Comparison(options, given, notices)
        if options.child:
            print(comparison.peak_here(*options.child))
        else:
            run(comparison)
    except (UserError, OSError) as error:
        tell(f"depthwise: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell("depthwise: stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
