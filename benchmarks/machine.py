"""What a benchmark ran on, in words, for the head of its page."""

from __future__ import annotations

import os
import platform

import torch

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
