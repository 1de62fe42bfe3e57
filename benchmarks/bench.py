"""Speed, memory and start-up of every model family compared with stock fairseq's Transformer of equal depth.

Each row is a process of its own; those that are compared take turns, round by round, on the same sentences and
batches, through fairseq's own trainer and beam search. Writes the record ``bench_DEVICE_SIZE``.

    python benchmarks/bench.py --size base --rows all --precisions fp32,bf16
    python benchmarks/bench.py --rows "depth-wise,mute 4" --rounds 9
    python benchmarks/bench.py --size base --rows units --together 12 --name units_cpu
    python benchmarks/bench.py --size base --rows int8 --together 7 --parts decoding --name int8_cpu
    python benchmarks/bench.py --size middle --rows connections --together 8 --name connections_cpu
    python benchmarks/bench.py --size base --rows large --together 1 --batches 1 --train-tokens 3000 --name large_cpu
    python benchmarks/bench.py --size small --rows protocol --together 20 --name protocol_cpu
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from bench_ctranslate2 import is_installed as has_ctranslate2
from bench_rows import (
    CONNECTED,
    CTRANSLATE2,
    DECODING,
    FAMILIES,
    GRAPHS,
    INT8,
    LARGE,
    PROTOCOL,
    QUICK,
    ROWS,
    SIZES,
    TRAINING,
    UNITS,
    Case,
    Row,
    cases,
    groups,
)
from bench_worker import MEMORY, Job, Worker
from program import (
    fairseq_options,
    integer,
    integers,
    make_parser,
    names_of,
    positive,
    record_name,
    run_program,
    tell,
    use_threads,
)
from record import available_memory, finish, setup_of, write_record
from turns import WorkFailedError, take_turns
from workloads import TYPES, Side

from fairseq_compat import UserError

CHOICES = {
    "quick": QUICK, "all": FAMILIES, "units": UNITS, "connections": CONNECTED, "int8": INT8, "graphs": GRAPHS,
    "large": LARGE, "protocol": PROTOCOL,
}  # fmt: skip


class Benchmark:
    """The measurements of a run.

    Args:
        options: see :func:`parse_options`.
        given: what was typed.

    Attributes:
        record: ``setup``; ``rows``, name -> family, layers, the stock row ``beside``, parameters; ``meetings``, each
            with the ``seconds`` and ``amount`` of every round for the rows that took turns; lists of ``start_up``,
            ``memory`` and ``skipped``.
    """

    def __init__(self, options: argparse.Namespace, given: Sequence[str]) -> None:
        self.options = options
        self.size = SIZES[options.size]
        setup = setup_of(
            "bench", given, "ctranslate2", device=options.device, size={"name": options.size, **vars(self.size)},
            sentences=options.decode_batches,
            **{name: getattr(options, name) for name in
               ("train_tokens", "lengths", "batches", "rounds", "starts", "precisions")},
        )  # fmt: skip
        lists: dict[str, Any] = {name: [] for name in ("meetings", "start_up", "memory", "skipped")}
        self.record: dict[str, Any] = {"setup": setup, "rows": {}, **lists}

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure, and return the record after each part of each group of rows."""
        for precision in self.options.precisions:
            for group in groups([ROWS[name] for name in self.options.rows], self.options.together):
                for part in self.options.parts:
                    self.measure(precision, part, [row for row in group if part in row.parts])
                    yield self.record

    def measure(self, precision: str, part: str, group: Sequence[Row]) -> None:
        """Measure a part of the rows that take turns."""
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
        """Return the cases of a row."""
        return cases(part, row, sentences=self.options.decode_batches, lengths=self.options.lengths)

    def start(self, row: Row, part: str, precision: str, workers: dict[str, Worker], *, keep: bool) -> None:
        """Start a row's process, unless it has failed in this before."""
        where = {"row": row.name, "part": part, "precision": precision}
        if any(where.items() <= skipped.items() for skipped in self.record["skipped"]):
            return
        if row.family == CTRANSLATE2 and not has_ctranslate2():
            self.skip(row.name, part, precision, "CTranslate2 is not installed; pip install -e '.[bench]' brings it")
            return
        options = self.options
        job = Job(
            Side(row.arch, (*row.options(self.size), *options.model_overrides)), ours=row.is_ours, part=part,
            precision=row.precision or precision, device=options.device, vocabulary=self.size.vocabulary,
            train_tokens=options.train_tokens, batches=options.batches, ctranslate2=row.family == CTRANSLATE2,
            memory=available_memory() if options.memory is None else int(options.memory * 2**30),
        )  # fmt: skip
        try:
            worker = Worker(job)
        except WorkFailedError as error:
            self.skip(row.name, part, precision, str(error))
            return
        tell(f"{row.name}, {part} {precision}: ready after {worker.start_up:.1f} s")
        self.record["rows"][row.name] = {
            "family": row.family, "layers": row.layers, "beside": row.beside, "arch": row.arch, "extra": row.extra,
            "parameters": worker.parameters, "unused": worker.unused,
        }  # fmt: skip
        if part == DECODING and row.family != CTRANSLATE2:  # that one converts a model first
            self.record["start_up"].append({"row": row.name, "precision": precision, "seconds": worker.start_up})
        if keep:
            workers[row.name] = worker
        else:
            worker.close()

    def meet(self, precision: str, case: Case, workers: dict[str, Worker]) -> None:
        """Measure a case of the rows that have it; those that fail are closed and taken out."""

        def failed(name: str, reason: str) -> None:
            workers.pop(name).close()
            self.skip(name, case.part, precision, reason)

        def turn_of(worker: Worker) -> Callable[[int], dict[str, Any]]:
            return lambda _: worker.ask(case)

        results = take_turns(
            {name: turn_of(worker) for name, worker in workers.items()},
            rounds=self.options.rounds, warm_up=self.options.warm_up, title=f"{case} {precision}", failed=failed,
        )  # fmt: skip
        if results:
            rows = {
                name: {number: [answer[number] for answer in answers] for number in ("seconds", "amount", "steps")}
                for name, answers in results.items()
            }
            self.record["meetings"].append({"precision": precision, "case": asdict(case), "rows": rows})

    def note_memory(self, name: str, part: str, precision: str, worker: Worker) -> None:
        """Add the peak of a row's process to the record."""
        if ROWS[name].family == CTRANSLATE2:  # most of its process is the model that was converted
            return
        try:
            peak = worker.ask(MEMORY)
        except WorkFailedError as error:
            self.skip(name, part, precision, str(error))
            return
        self.record["memory"].append({"row": name, "part": part, "precision": precision, **peak})

    def skip(self, name: str, part: str, precision: str, reason: str) -> None:
        """Leave a row out from here on, and write why into the record."""
        self.record["skipped"].append({"row": name, "part": part, "precision": precision, "reason": reason})
        tell(f"{name} is skipped in {part} {precision}: {reason}")


def rows_named(text: str) -> list[str]:
    """Parse a choice or names of rows; names hold commas, so the longest name that fits is taken."""
    if text in CHOICES:
        return list(CHOICES[text])
    names: list[str] = []
    rest = text.strip()
    while rest:
        fitting = [name for name in ROWS if rest == name or rest.startswith(f"{name},")]
        if not fitting:
            known = "; ".join(ROWS)
            raise argparse.ArgumentTypeError(
                f"{rest!r} begins with no row's name; there are {', '.join(CHOICES)}, or {known}"
            )
        name = max(fitting, key=len)
        names.append(name)
        rest = rest[len(name) :].removeprefix(",").strip()
    if not names:
        raise argparse.ArgumentTypeError("no row is named")
    return list(dict.fromkeys(names))


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options, with the defaults that depend on the device and the size."""
    parser = make_parser(__doc__)
    add, shown = parser.add_argument, "(default: %(default)s)"
    parts = (TRAINING, DECODING)
    add("--name", type=record_name, metavar="NAME", help="of the record (default: bench_DEVICE_SIZE)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help=f"of all rows {shown}")
    add("--size", choices=tuple(SIZES), default="narrow", help=f"width of all models {shown}")
    add("--rows", type=rows_named, default=list(QUICK), metavar="LIST", help=f"{', '.join(CHOICES)}, or names of rows"
        " with commas between them (default: quick)")  # fmt: skip
    add("--precisions", type=names_of(tuple(TYPES)), default=["fp32"], metavar="LIST", help="default: fp32")
    add("--parts", type=names_of(parts), default=list(parts), metavar="LIST", help=f"of {', '.join(parts)}")
    add("--rounds", type=integer(1), default=5, metavar="N", help=f"rounds that count {shown}")
    add("--warm-up", type=integer(0), default=1, metavar="N", help=f"rounds before {shown}")
    add("--starts", type=integer(1), default=3, metavar="N", help=f"timed starts of each row's decoding {shown}")
    add("--together", type=integer(1), default=3, metavar="N", help=f"rows alive at a time, stock's included {shown}")
    add("--train-tokens", type=integer(1), metavar="N", help="target tokens of a training batch (default: 1200 on cpu,"
        " 16384 on cuda)")  # fmt: skip
    add("--decode-batches", type=integers, metavar="LIST", help="sentences translated at once (default: 1,32 on cpu,"
        " 1,128 on cuda)")  # fmt: skip
    add("--lengths", type=integers, default=[10, 20, 40, 80], metavar="LIST", help="tokens of sentences that are all"
        " of one length (default: 10,20,40,80)")  # fmt: skip
    add("--batches", type=integer(1), default=2, metavar="N", help=f"different batches, all of them in a turn {shown}")
    add("--threads", type=integer(1), metavar="N", help="of PyTorch and CTranslate2 on a CPU (default: PyTorch's"
        " own choice)")  # fmt: skip
    add("--memory", type=positive, metavar="GIB", help="what a row may take on a CPU, besides Python and PyTorch"
        " (default: what is free)")  # fmt: skip
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models,"
        ' like --model-overrides="--decoder-layers 2"')  # fmt: skip
    options = parser.parse_args(given)
    on_cuda = options.device == "cuda"
    options.train_tokens = options.train_tokens or (16384 if on_cuda else 1200)
    options.decode_batches = options.decode_batches or [1, 128 if on_cuda else 32]
    options.name = options.name or f"bench_{options.device}_{options.size}"
    return options


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record.

    Raises:
        UserError: there is no such device, nothing at all could be measured, or a file not written.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"--device cuda: PyTorch finds no GPU here, so all {len(options.rows)} rows are skipped and nothing is "
            "measured; --device cpu measures on this machine"
        )
    use_threads(options.threads)
    benchmark = Benchmark(options, given)
    for record in benchmark.run():
        write_record(options.records, options.name, record)
    record = benchmark.record
    if not record["meetings"]:
        reasons = "; ".join(dict.fromkeys(f"{skipped['row']}: {skipped['reason']}" for skipped in record["skipped"]))
        raise UserError(f"nothing could be measured: {reasons}")
    finish(options.records, options.name, record)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("bench", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
