"""Speed, memory and start-up of every model family beside stock fairseq's Transformer of equal depth.

Each row is a process of its own; those that are compared work by turns, round by round, on the same sentences and
batches, through fairseq's own trainer and beam search. Progress goes to stderr, the section of the page to stdout.

    python benchmarks/bench.py --docs docs
    python benchmarks/bench.py --size base --rows all --precisions fp32,bf16 --docs docs
    python benchmarks/bench.py --rows "depth-wise,mute 4" --rounds 9
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_ctranslate2 import is_installed as has_ctranslate2
from bench_figures import write_figures
from bench_page import page
from bench_rows import CTRANSLATE2, DECODING, QUICK, ROWS, SIZES, TRAINING, Case, Row, cases, groups
from bench_turns import RowFailedError, Worker, take_turns
from bench_worker import Job
from machine import available_memory, machine, use_threads, versions
from option_types import (
    batch_sizes,
    command_of,
    existing_folder,
    fairseq_options,
    names_of,
    positive_number,
    whole_number,
)
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import TYPES

from fairseq_compat import UserError
from fairseq_depthwise.figures import require_matplotlib

CHOICES = {"quick": QUICK, "all": tuple(ROWS)}


class Benchmark:
    """The measurements of a run.

    Args:
        options: see :func:`parse_options`.
        command: what was typed.

    Attributes:
        record: all numbers, as they go into the JSON file; ``bench_page`` says what it holds.
    """

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        self.options = options
        self.size = SIZES[options.size]
        self.record: dict[str, Any] = {
            "setup": {
                "command": command,
                "machine": machine() + (f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""),
                "device": options.device,
                "threads": torch.get_num_threads(),
                "versions": versions("fairseq", "fairseq-depthwise", "ctranslate2"),
                "size": {"name": options.size, **vars(self.size)},
                "train_tokens": options.train_tokens,
                "sentences": options.decode_batches,
                "lengths": options.lengths,
                "batches": options.batches,
                "rounds": options.rounds,
                "starts": options.starts,
                "precisions": options.precisions,
            },
            "rows": {},
            "meetings": [],
            "start_up": [],
            "memory": [],
            "skipped": [],
        }

    def run(self) -> Iterator[dict[str, Any]]:
        """The record after each group of rows."""
        for precision in self.options.precisions:
            for group in groups([ROWS[name] for name in self.options.rows], self.options.together):
                for part in self.options.parts:
                    self.measure(precision, part, [row for row in group if part in row.parts])
                    yield self.record

    def measure(self, precision: str, part: str, group: Sequence[Row]) -> None:
        """One part of the rows that take turns."""
        workers: dict[str, Worker] = {}
        try:
            for start in reversed(range(self.options.starts if part == DECODING else 1)):
                for row in group:
                    # All processes but those of the last start are for its seconds only.
                    self.start(row, part, precision, workers, keep=start == 0)
            for case in dict.fromkeys(case for row in group for case in self.cases(part, row)):
                taking_part = [row.name for row in group if row.name in workers and case in self.cases(part, row)]
                chosen = {name: workers[name] for name in taking_part}
                if chosen:
                    self.meet(precision, case, chosen)
                for name in set(taking_part) - set(chosen):  # those that failed
                    del workers[name]
            for name, worker in workers.items():
                self.note_memory(name, part, precision, worker)
        finally:
            for worker in workers.values():
                worker.close()

    def cases(self, part: str, row: Row) -> list[Case]:
        return cases(part, row, sentences=self.options.decode_batches, lengths=self.options.lengths)

    def start(self, row: Row, part: str, precision: str, workers: dict[str, Worker], *, keep: bool) -> None:
        """Start a row's process, unless it has failed in this before."""
        where = {"row": row.name, "part": part, "precision": precision}
        if any(where.items() <= one.items() for one in self.record["skipped"]):
            return
        if row.name == CTRANSLATE2 and not has_ctranslate2():
            self.skip(row.name, part, precision, "CTranslate2 is not installed; pip install -e '.[bench]' brings it")
            return
        options = self.options
        job = Job(
            family=row.family, ours=row.is_ours, arch=row.arch,
            options=(*row.options(self.size), *options.model_overrides),
            part=part, precision=precision, device=options.device, vocabulary=self.size.vocabulary,
            train_tokens=options.train_tokens, batches=options.batches,
            memory=available_memory() if options.memory is None else int(options.memory * 2**30),
        )  # fmt: skip
        try:
            worker = Worker(job)
        except RowFailedError as error:
            self.skip(row.name, part, precision, str(error))
            return
        tell(f"{row.name}, {part} {precision}: ready after {worker.start_up:.1f} s")
        self.record["rows"][row.name] = {
            "family": row.family, "layers": row.layers, "beside": row.beside, "arch": row.arch, "extra": row.extra,
            "parameters": worker.parameters, "unused": worker.unused,
        }  # fmt: skip
        if part == DECODING and row.name != CTRANSLATE2:  # that one converts a model first
            self.record["start_up"].append({"row": row.name, "precision": precision, "seconds": worker.start_up})
        if keep:
            workers[row.name] = worker
        else:
            worker.close()

    def meet(self, precision: str, case: Case, workers: dict[str, Worker]) -> None:
        """One case of the rows that have it."""
        rounds = self.options.rounds

        def failed(name: str, reason: str) -> None:
            self.skip(name, case.part, precision, reason)

        def say(number: int, seconds: Mapping[str, float]) -> None:
            which = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
            took = ", ".join(f"{name} {taken:.3f} s" for name, taken in seconds.items())
            tell(f"{case} {precision}, {which}: {took}")

        warm_up = self.options.warm_up
        found = take_turns(workers, case, rounds=rounds, warm_up=warm_up, failed=failed, say=say)
        if found:
            self.record["meetings"].append({"precision": precision, "case": case.as_numbers(), "rows": found})

    def note_memory(self, name: str, part: str, precision: str, worker: Worker) -> None:
        if name == CTRANSLATE2:  # most of its process is the model that was converted
            return
        try:
            found = worker.ask("memory")
        except RowFailedError as error:
            self.skip(name, part, precision, str(error))
            return
        self.record["memory"].append({"row": name, "part": part, "precision": precision, **found})

    def skip(self, name: str, part: str, precision: str, reason: str) -> None:
        """Leave a row out from here on, and say why."""
        self.record["skipped"].append({"row": name, "part": part, "precision": precision, "reason": reason})
        tell(f"{name} is skipped in {part} {precision}: {reason}")


def rows_named(text: str) -> list[str]:
    """``quick``, ``all``, or names of rows; names hold commas, so the longest name that fits is taken."""
    if text in CHOICES:
        return list(CHOICES[text])
    found: list[str] = []
    rest = text.strip()
    while rest:
        fitting = [name for name in ROWS if rest == name or rest.startswith(f"{name},")]
        if not fitting:
            known = "; ".join(ROWS)
            raise argparse.ArgumentTypeError(f"{rest!r} begins with no row's name; there are quick, all, or {known}")
        name = max(fitting, key=len)
        found.append(name)
        rest = rest[len(name) :].removeprefix(",").strip()
    if not found:
        raise argparse.ArgumentTypeError("no row is named")
    return list(dict.fromkeys(found))


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """The options, with the defaults that depend on the device and the size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    add("--size", choices=tuple(SIZES), default="narrow", help="width of all models (default: %(default)s)")
    add("--rows", type=rows_named, default=list(QUICK), metavar="LIST", help="quick, all, or rows' names with commas"
        " between them (default: quick)")  # fmt: skip
    add("--precisions", type=names_of(tuple(TYPES)), default=["fp32"], metavar="LIST", help="default: fp32")
    parts = (TRAINING, DECODING)
    add("--parts", type=names_of(parts), default=list(parts), metavar="LIST", help=f"of {', '.join(parts)}")
    add("--rounds", type=whole_number(1), default=5, metavar="N", help="rounds that count (default: %(default)s)")
    add("--warm-up", type=whole_number(0), default=1, metavar="N", help="rounds before (default: %(default)s)")
    add("--starts", type=whole_number(1), default=3, metavar="N", help="starts of each row's decoding that are timed"
        " (default: %(default)s)")  # fmt: skip
    add("--together", type=whole_number(2), default=3, metavar="N", help="rows alive at a time, stock's included"
        " (default: %(default)s)")  # fmt: skip
    add("--train-tokens", type=whole_number(1), metavar="N", help="target tokens of a training batch (default: 1200 on"
        " cpu, 16384 on cuda)")  # fmt: skip
    add("--decode-batches", type=batch_sizes, metavar="LIST", help="sentences translated at once (default: 1,32 on cpu,"
        " 1,128 on cuda)")  # fmt: skip
    add("--lengths", type=batch_sizes, default=[10, 20, 40, 80], metavar="LIST", help="tokens of sentences that are all"
        " of one length (default: 10,20,40,80)")  # fmt: skip
    add("--batches", type=whole_number(1), default=2, metavar="N", help="different batches, all of them in each turn"
        " (default: %(default)s)")  # fmt: skip
    add("--threads", type=whole_number(1), metavar="N", help="of PyTorch and CTranslate2 on a CPU (default: PyTorch's"
        " own choice)")  # fmt: skip
    add("--memory", type=positive_number, metavar="GIB", help="what a row may take on a CPU, besides Python and PyTorch"
        " (default: what is free)")  # fmt: skip
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models,"
        ' like --model-overrides="--decoder-layers 2"')  # fmt: skip
    add("--docs", type=existing_folder, metavar="FOLDER", help="write the section of benchmarks.md there, the numbers"
        " into records/ and the figures into figures/ below it")  # fmt: skip
    options = parser.parse_args(given)
    on_cuda = options.device == "cuda"
    options.train_tokens = options.train_tokens or (16384 if on_cuda else 1200)
    options.decode_batches = options.decode_batches or [1, 128 if on_cuda else 32]
    return options


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, print the section and write the files.

    Raises:
        UserError: there is no such device, nothing at all could be measured, or a file not written.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"--device cuda: PyTorch finds no GPU here, so all {len(options.rows)} rows are skipped and nothing is "
            "measured; --device cpu measures on this machine"
        )
    use_threads(options.threads)
    benchmark = Benchmark(options, command_of(given, "bench.py"))
    name = f"bench-{options.device}-{options.size}"
    file_name = name.replace("-", "_")
    record = benchmark.record
    try:
        for _ in benchmark.run():
            if options.docs:
                write_json(made(options.docs / "records") / f"{file_name}.json", record)
    finally:
        if record["meetings"]:  # also those of a run that is stopped
            print(section(name, page(record)), end="")
    if not record["meetings"]:
        reasons = "; ".join(dict.fromkeys(f"{one['row']}: {one['reason']}" for one in record["skipped"]))
        raise UserError(f"nothing could be measured: {reasons}")
    if options.docs:
        figures: dict[str, str] = {}
        try:
            require_matplotlib("drawing the figures")
            figures = write_figures(record, made(options.docs / "figures"), file_name)
        except UserError as error:
            tell(f"figures are skipped: {error}")
        write_section(options.docs / "benchmarks.md", name, page(record, figures, f"records/{file_name}.json"))


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options(given)
    return run_program("bench", lambda: run(options, given))


if __name__ == "__main__":
    sys.exit(main())
