"""Freed memory that a process keeps on a CPU, and facts about its processor.

glibc, the C library of most Linux distributions, maps every large block anew and unmaps it when it is freed, and the
system clears each of its pages when it is first touched. A step of training or of a beam search frees and allocates
blocks of the same sizes again and again; if they are kept, there are no page faults (docs/training.md).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

#: mallopt's parameters, from glibc's malloc.h, and the largest value: it takes an int.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST = -1, -3, 2**31 - 1

#: With one of these in the environment the user has decided.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep freed blocks, and up to 2 GiB at the end of the heap; return whether it does.

    Only the first call has an effect, and without glibc none has. Commands call it at their start; a program that uses
    the models by itself may do so too.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    return all(mallopt(parameter, _LARGEST) == 1 for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def processor_facts() -> dict[str, str]:
    """Return Linux's description of the first processor, such as ``model name`` and ``flags``; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            fields = (line.partition(":") for line in file.read().partition("\n\n")[0].splitlines())
            return {name.strip(): value.strip() for name, _, value in fields}
    except OSError:
        return {}
