"""What a benchmark ran on, for the head of its page, and how much memory it has."""

from __future__ import annotations

import os
import platform

import torch

from fairseq_compat.process import keep_freed_memory
from fairseq_compat.versions import installed_version


def machine() -> str:
    """Processor, cores and system in words."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        processor = named[0] if named else processor
    except OSError:
        pass
    return f"{processor} ({os.cpu_count()} cores), {platform.system()} {platform.machine()}"


def versions(*distributions: str) -> str:
    """Versions of Python, PyTorch and further distributions, as far as they are installed, in words."""
    found = {"Python": platform.python_version(), "PyTorch": torch.__version__}
    found |= {name: version for name in distributions if (version := installed_version(name))}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def memory_variables() -> str:
    """The environment's variables that change how the C library hands out memory, ``NAME=value`` each."""
    return " ".join(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("MALLOC_"))


def use_threads(number: int | None) -> None:
    """Let PyTorch compute with so many threads, here and in programs started from here; None leaves it as it is.

    Freed memory is kept, as by every command that computes on a CPU.
    """
    keep_freed_memory()
    if number is not None:
        os.environ["OMP_NUM_THREADS"] = str(number)
        torch.set_num_threads(number)


def available_memory() -> int | None:
    """Bytes that processes can take before the system swaps or ends one; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
