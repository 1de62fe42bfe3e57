"""What all programs of this folder share: the command line, records, and taking turns.

A record is a JSON file with the ``setup`` of a measurement (command, machine, versions) and all its numbers;
``tables.py`` makes tables of records. What is compared takes turns, round by round, so that a machine whose speed
changes is as fast for all, and a ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import re
import resource
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.process import keep_freed_memory, processor_facts
from fairseq_compat.versions import installed_version

Record = Mapping[str, Any]
Result = TypeVar("Result")

RECORDS = Path("docs/records")


def run_program(
    name: str,
    parse: Callable[[Sequence[str]], argparse.Namespace],
    run: Callable[[argparse.Namespace, Sequence[str]], object],
    arguments: Sequence[str] | None,
) -> int:
    """Do a program's work, with its options and with what was typed; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    prepare_process()
    try:
        run(options, given)
    except (UserError, OSError) as error:
        tell(f"{name}: error: {error}")
        return 1
    except KeyboardInterrupt:
        tell(f"{name}: stopped")
        return 130
    return 0


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that every program has."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--records", type=Path, default=RECORDS, metavar="FOLDER", help="(default: %(default)s)")
    return parser


def integer(at_least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``at_least`` on."""

    def whole_number(text: str) -> int:
        if int(text) < at_least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {at_least}")
        return int(text)

    return whole_number


def prepare_process() -> None:
    """Do what a process that measures does first."""
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it logs much about every model it builds
    keep_freed_memory()  # as every command that computes on a CPU


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def setup_of(program: str, given: Sequence[str], device: str = "cpu", **further: Any) -> dict[str, Any]:
    """Return how, where and with what a program measures; further is what else its numbers depend on."""
    facts = processor_facts()
    processor = facts.get("model name") or platform.processor() or platform.machine()
    # One name stands for several makes, with and without instructions for int8.
    make = [f"{os.cpu_count()} cores", f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"]
    make += [torch.backends.cpu.get_cpu_capability(), *(["VNNI"] if "vnni" in facts.get("flags", "") else [])]
    machine = f"{processor} ({', '.join(make)}), {platform.system()} {platform.machine()}"
    versions = {"Python": platform.python_version(), "PyTorch": torch.__version__}
    names = ("fairseq", "fairseq-depthwise", "ctranslate2", "onnxruntime")
    versions |= {name: version for name in names if (version := installed_version(name))}
    return {
        "program": program,
        "command": command_of(program, given),
        "machine": machine + (f", {torch.cuda.get_device_name()}" if device == "cuda" else ""),
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        **further,
    }


def command_of(program: str, given: Sequence[str]) -> str:
    """Return the command line, with the variables that change a CPU's speed and without folders of this machine."""
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("MALLOC_", "OMP_"))]
    places = ("--records", "--work")
    shown = [
        re.sub(r"(^|=)/.*/(?=.)", r"\1.../", word)
        for before, word in zip(["", *given], given, strict=False)
        if before not in places and word.partition("=")[0] not in places
    ]
    return " ".join([*variables, "python", f"benchmarks/{program}.py", shlex.join(shown)]).strip()


def write_record(folder: Path, name: str, record: Record) -> None:
    """Write a record; programs do so after each result, so that a run that is stopped leaves what it measured."""
    folder.mkdir(parents=True, exist_ok=True)
    read_record(folder, name)  # whatever else is there is not replaced
    with atomic_write(folder / f"{name}.json") as file:
        file.write((json.dumps(record, indent=1) + "\n").encode())


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """Read a record; None if there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["setup"]["program"]
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path} is not a record of these programs; move it away") from None
    return record


def finish(folder: Path, name: str, record: Record) -> None:
    """Write a record and print its tables."""
    write_record(folder, name, record)
    from tables import tables_of  # imports the plugin, which stock fairseq is measured without

    print("\n".join(tables_of(record).values()))
    tell(f"{folder / name}.json is written; python benchmarks/tables.py puts its tables into the pages")


def take_turns(works: Mapping[str, Callable[[], Result]], rounds: int, warm_up: int = 1) -> dict[str, list[Result]]:
    """Return the results of each work by round, after rounds that do not count.

    Each round begins with the next one, so that none always follows the same other one.
    """
    names = list(works)
    results: dict[str, list[Result]] = {name: [] for name in names}
    for number in range(-warm_up, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            result = works[name]()
            if number >= 0:
                results[name].append(result)
    return results


def timed(work: Callable[[], object], device: str = "cpu") -> float:
    """Return the seconds of a work."""
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratios of two works, round by round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def extent(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lowest value, the median and the highest value."""
    return min(values), median(values), max(values)


def peak_of_process() -> int:
    """Return the most bytes that this process has had in memory."""
    try:
        # ru_maxrss begins with the size of the process that started this one; the kernel's own figure does not.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except OSError:  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
