"""Records: JSON files with the ``setup`` of a measurement (command, machine, versions) and all its numbers.

Programs write them, ``render.py`` makes tables of them.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from program import tell

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.process import processor_facts
from fairseq_compat.versions import installed_version

Record = Mapping[str, Any]


def setup_of(
    program: str, given: Sequence[str], *distributions: str, device: str = "cpu", **further: Any
) -> dict[str, Any]:
    """Return how, where and with what is measured.

    Args:
        program: the file's name, without its ending.
        given: its command line.
        distributions: whose versions matter, besides fairseq and this project.
        device: cpu or cuda.
        further: what else the numbers depend on.
    """
    return {
        "program": program,
        "command": command_of(program, given),
        "machine": machine() + (f", {torch.cuda.get_device_name()}" if device == "cuda" else ""),
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": versions("fairseq", "fairseq-depthwise", *distributions),
        **further,
    }


def command_of(program: str, given: Sequence[str]) -> str:
    """Return the command line, with the variables that change a CPU's speed and without folders of this machine."""
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith(("MALLOC_", "OMP_"))]
    shown: list[str] = []
    for number, word in enumerate(given):
        before = given[number - 1] if number else ""
        if before in ("--records", "--work") or word.partition("=")[0] in ("--records", "--work"):
            continue
        if before == "--corpus" or word.startswith("--corpus="):
            shown.append(f"--corpus=$CORPORA/{Path(word.partition('=')[2] or word).resolve().name}")
        elif word != "--corpus":
            shown.append(word)
    words = [f'"{word}"' if "$CORPORA" in word else shlex.quote(word) for word in shown]
    return " ".join([*variables, "python", f"benchmarks/{program}.py", *words])


def machine() -> str:
    """Return processor, cores and system in words."""
    processor = processor_facts().get("model name") or platform.processor() or platform.machine()
    return f"{processor} ({os.cpu_count()} cores), {platform.system()} {platform.machine()}"


def versions(*distributions: str) -> str:
    """Return the versions of Python, PyTorch and the distributions that are installed, in words."""
    known = {"Python": platform.python_version(), "PyTorch": torch.__version__}
    known |= {name: version for name in distributions if (version := installed_version(name))}
    return ", ".join(f"{name} {version}" for name, version in known.items())


def write_record(folder: Path, name: str, record: Record) -> None:
    """Write a record; programs do so after each result, so that a run that is stopped leaves what it measured.

    Raises:
        UserError: a file of that name is no record.
    """
    folder.mkdir(exist_ok=True)
    read_record(folder, name)
    with atomic_write(folder / f"{name}.json") as file:
        file.write((json.dumps(record, indent=1) + "\n").encode())


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """Read a record; None if there is none.

    Raises:
        UserError: the file is none.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record["setup"], dict):
            raise TypeError
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path} is not a record of these benchmarks; move it away") from None
    return dict(record)


def finish(folder: Path, name: str, record: Record) -> None:
    """Write a record and print its tables."""
    from render import tables_of  # needs the programs' names of what they measure

    print("\n".join(tables_of(record).values()))
    write_record(folder, name, record)
    tell(f"{folder / name}.json is written; python benchmarks/render.py puts its tables into the pages")


# --- memory -------------------------------------------------------------------------------------------------------


def available_memory() -> int | None:
    """Return the bytes that processes can take before the system swaps or ends one; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def limit_memory(limit: int) -> None:
    """Refuse to this process more than so many bytes on top of what it has, and make it the first that has to go.

    Where memory runs out all the same, the system is to end this process and no other.
    """
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
        with open("/proc/self/status", encoding="ascii") as file:
            held = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return  # not Linux
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def peak_of_process() -> int:
    """Return the most bytes that this process has had in memory."""
    try:
        # ru_maxrss begins with the size of the process that started this one; the kernel's own figure does not.
        with open("/proc/self/status", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
