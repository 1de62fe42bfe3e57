"""What all benchmark programs share: their command line, the set-up of their process, and the records they write.

A record is a JSON file with the ``setup`` of a measurement (command, machine, versions) and all its numbers;
``tables.py`` makes tables of it. Importing this module also makes the modules of ``recipes`` importable.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_compat.process import keep_freed_memory, processor_facts
from fairseq_compat.versions import installed_version

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("recipes", "recipes/lib")]
from recipe_step import write_json  # the folder is on the path by the line above

Record = Mapping[str, Any]

#: Folder of the records, from the root of the repository.
RECORDS = Path("docs/records")


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option ``--records``, which every program has."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(
        "--records", type=Path, default=RECORDS, metavar="FOLDER", help="folder for the record (default: %(default)s)"
    )
    return parser


def integer(at_least: int) -> Callable[[str], int]:
    """Return an argparse type: an integer of at least ``at_least``."""

    # argparse prints the name of the function: "invalid whole_number value".
    def whole_number(text: str) -> int:
        if int(text) < at_least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {at_least}")
        return int(text)

    return whole_number


def prepare_process() -> None:
    """Set up the process of a measurement: fewer log messages, and freed memory is kept, as in the commands."""
    # fairseq logs many lines for every model that it builds.
    logging.getLogger("fairseq").setLevel(logging.ERROR)
    keep_freed_memory()


def print_progress(message: str) -> None:
    """Print a progress message to stderr."""
    print(message, file=sys.stderr, flush=True)


def describe_setup(program: str, arguments: Sequence[str], device: str = "cpu", **further: Any) -> dict[str, Any]:
    """Return command, machine and versions of a measurement, and ``further`` settings that its numbers depend on."""
    versions = {"Python": platform.python_version(), "PyTorch": torch.__version__}
    for name in ("fairseq", "fairseq-depthwise", "ctranslate2", "onnxruntime"):
        version = installed_version(name)  # None if it is not installed
        if version:
            versions[name] = version
    machine = _describe_machine()
    if device == "cuda":
        machine += f", {torch.cuda.get_device_name()}"
    return {
        "program": program,
        "command": describe_command(program, arguments),
        "machine": machine,
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        **further,
    }


def _describe_machine() -> str:
    facts = processor_facts()
    processor = facts.get("model name") or platform.processor() or platform.machine()
    # The name does not tell processors apart: some of one name have int8 instructions (VNNI), others have not.
    details = [
        f"{os.cpu_count()} cores",
        f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}",
        torch.backends.cpu.get_cpu_capability(),
    ]
    if "vnni" in facts.get("flags", ""):
        details.append("VNNI")
    return f"{processor} ({', '.join(details)}), {platform.system()} {platform.machine()}"


def describe_command(program: str, arguments: Sequence[str]) -> str:
    """Return the command line, with the environment variables that affect speed and without this machine's folders."""
    prefixes = ("GLIBC_TUNABLES", "MALLOC_", "OMP_")
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(prefixes)]
    # Options that only name folders do not affect the measurement.
    folder_options = ("--records", "--work")
    words = []
    for previous, word in zip(["", *arguments], arguments, strict=False):  # previous: perhaps the option of a value
        if previous not in folder_options and word.partition("=")[0] not in folder_options:
            # Keep only the last part of absolute paths.
            words.append(re.sub(r"(^|=)/.*/(?=.)", r"\1.../", word))
    return " ".join([*variables, "python", f"benchmarks/{program}.py", shlex.join(words)]).strip()


def write_record(folder: Path, name: str, record: Record) -> None:
    """Write a record. Programs call this after each result, so that an interrupted run keeps its results."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", record, indent=1)


def write_and_print(folder: Path, name: str, record: Record) -> None:
    """Write a record and print its tables."""
    write_record(folder, name, record)
    from tables import make_tables  # here, since it imports programs that import this module

    print("\n".join(make_tables(record).values()))
    print_progress(f"{folder / name}.json is written; python benchmarks/tables.py puts its tables into the pages")
