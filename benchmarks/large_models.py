"""Whether large models fit, and how fast they train: peak memory, each measure that saves some added to the last.

Each case is a process of its own, in which fairseq's Trainer makes two updates. The numbers of all cases so far are in
the record, from which the section of the page is made; so a machine may measure some models, another the others.
Progress goes to stderr, the section to stdout.

    python benchmarks/large_models.py --record docs/records/large_models.json --output docs/benchmarks.md
    python benchmarks/large_models.py --models big --device cuda --record docs/records/large_models.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from large_models_page import DEVICES, MEASURES, MODELS, page
from machine import available_memory, machine, memory_variables, versions
from option_types import file_to_write, names_of, whole_number
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import (
    Side,
    Training,
    corpus,
    dictionary_of,
    on_device,
    parameter_count,
    peak_memory,
    training_batches,
)

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_compat import UserError

#: The section of the page that this program writes.
SECTION = "large-models"

#: Left to the rest of the machine, bytes; above that a case ends instead of having the system end some process.
_RESERVE = 2**30


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=DEVICES, default="cpu", help="default: %(default)s")
    add("--models", type=names_of(tuple(MODELS)), default=list(MODELS), metavar="LIST", help=f"of {', '.join(MODELS)}")
    add("--measures", type=names_of(tuple(MEASURES)), default=list(MEASURES), metavar="LIST",
        help=f"of {', '.join(MEASURES)}")  # fmt: skip
    add("--train-tokens", type=whole_number(1), metavar="N", help="target tokens in a batch (default: 1000 on cpu,"
        " 4096 on cuda)")  # fmt: skip
    add("--vocabulary", type=whole_number(16), default=32768, metavar="N", help="default: %(default)s")
    add("--model-overrides", default="", metavar="OPTIONS", help="fairseq options for all models")
    add("--peaks-only", action="store_true", help="leave the seconds out, on a machine that has other work")
    add("--record", type=file_to_write, metavar="FILE", help="numbers of all cases so far; this run's are added")
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    add("--child", nargs=2, metavar=("MODEL", "MEASURE"), help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    options.train_tokens = options.train_tokens or (4096 if options.device == "cuda" else 1000)
    return options


def side_of(model: str, measure: str, overrides: str) -> tuple[Side, str]:
    """The model with its options, and the precision."""
    arch, *sizes = MODELS[model]
    precision, *measures = MEASURES[measure]
    return Side(arch, (*sizes, *measures, *overrides.split())), precision


# --- one case --------------------------------------------------------------------------------------------------------


def measure_here(model: str, measure: str, options: argparse.Namespace, room: int) -> dict[str, Any]:
    """Peak memory, parameters and seconds of the second update, in this process, which has to be a fresh one.

    Raises:
        UserError: there is too little memory; on a CPU no more than ``room`` bytes are taken.
    """
    if options.device == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (room, resource.RLIM_INFINITY))
    side, precision = side_of(model, measure, options.model_overrides)
    dictionary = dictionary_of(options.vocabulary)
    dataset = corpus(dictionary, max(600, options.train_tokens // 8))
    batch = on_device(training_batches(dataset, options.train_tokens, 3), options.device)[-1]
    seconds: list[float] = []

    def build() -> Callable[[], object]:
        work = Training(side, dictionary, options.device, precision)

        def update() -> None:
            begin = time.perf_counter()
            work(batch)
            if options.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)

        return update

    peak = peak_memory(build, options.device)
    return {
        "peak": peak,
        "parameters": parameter_count(side, dictionary),
        "seconds": None if options.peaks_only else seconds[-1],
        "tokens": int(batch["ntokens"]),
    }


def measure_as_child(model: str, measure: str, options: argparse.Namespace) -> None:
    """Print the numbers as JSON; ``skipped`` is a sentence where memory is too little."""
    room = _room() if options.device == "cpu" else torch.cuda.get_device_properties(0).total_memory
    try:
        found = measure_here(model, measure, options, room)
    except (RuntimeError, MemoryError, UserError) as error:
        if "memory" not in f"{error}{type(error)}".lower():
            raise
        found = {"skipped": f"it needs more than the {room / 2**30:.1f} GiB that {options.device} has free"}
    print(json.dumps(found))


def _room() -> int:
    """Bytes that a process may take and leave some to the others; huge where the system does not say."""
    available = available_memory()
    return 2**62 if available is None else available - _RESERVE


def measure_apart(model: str, measure: str, given: Sequence[str]) -> dict[str, Any]:
    """What :func:`measure_as_child` finds in a process of its own.

    Raises:
        UserError: it failed for another reason.
    """
    command = [sys.executable, __file__, *given, "--child", model, measure]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return numbers
    last = (done.stderr.strip() or f"its process ended with {done.returncode}").splitlines()[-1]
    raise UserError(f"{model}, {measure}: {last.removeprefix('large_models: error: ')}")


# --- all of them -----------------------------------------------------------------------------------------------------


def setup_of(options: argparse.Namespace) -> dict[str, Any]:
    """Where and with what this run measures."""
    accelerator = f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    return {
        "machine": machine() + accelerator,
        "threads": torch.get_num_threads(),
        "versions": versions("fairseq", "fairseq-depthwise"),
        "variables": memory_variables(),
    }


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, keep the numbers, print the section and write it."""
    record = read_record(options.record)
    for model in options.models:
        for measure in options.measures:
            case = {"device": options.device, "model": model, "measure": measure}
            found = measure_apart(model, measure, given)
            record["cases"] = [one for one in record["cases"] if not case.items() <= one.items()]
            record["cases"].append({**case, **found, "setup": setup_of(options)})
            tell(f"{model}, {measure}: {found.get('skipped') or in_words(found)}")
            if options.record:
                write_json(options.record, record)
    text = page(record["cases"])
    print(section(SECTION, text), end="")
    if options.output:
        write_section(options.output, SECTION, text)


def read_record(path: Path | None) -> dict[str, Any]:
    """The numbers so far.

    Raises:
        UserError: the file is no record.
    """
    if path is None or not path.exists():
        return {"cases": []}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not all("measure" in case for case in record["cases"]):
            raise KeyError("measure")
    except (ValueError, TypeError, KeyError):
        raise UserError(f"--record {path} is not what this program wrote; give another file") from None
    return {"cases": list(record["cases"])}


def in_words(found: Mapping[str, Any]) -> str:
    seconds = f", {found['seconds']:.2f} s an update" if found["seconds"] else ""
    return f"{found['peak'] / 2**30:.2f} GiB with {found['tokens']} tokens{seconds}"


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        tell("large_models: skipped: PyTorch finds no GPU here, which --device cuda needs")
        return 0
    return run_program(
        "large_models",
        lambda: measure_as_child(*options.child, options) if options.child else run(options, given),
    )


if __name__ == "__main__":
    sys.exit(main())
