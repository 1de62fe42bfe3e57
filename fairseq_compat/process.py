"""How this process treats freed memory on a CPU, and facts about its processor.

glibc, the C library of most Linux distributions, returns large freed blocks to the system: all above 32 MiB, smaller
ones until it has adjusted its threshold to them. The system clears each page of the next block when it is first
touched. A step of training or of a beam search frees and allocates blocks of the same sizes again and again; if they
are kept, there are no such page faults (docs/training.md).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

#: Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: In bytes; mallopt takes an int. As threshold of mmap, older versions of glibc accept at most 32 MiB (on 64 bits).
_LARGEST, _LARGEST_OF_OLDER = 2**31 - 1, 2**25

#: If one of these is set, the user's choice stands.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache  # once for a process
def keep_freed_memory() -> bool:
    """Let this process keep freed blocks, and up to 2 GiB at the end of the heap; return whether it does.

    Only the first call has an effect, and without glibc none has. Commands call it at their start; programs that use
    the models directly may call it, too.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no mallopt (musl, macOS), or no library to load (Windows)
        return False
    # The threshold of mmap first. Either call ends glibc's own adjustment of it, so that the other one alone would be
    # worse than nothing: every block above 128 KiB would be mapped anew.
    for limit in (_LARGEST, _LARGEST_OF_OLDER):
        if mallopt(_MMAP_THRESHOLD, limit) == 1:
            return bool(mallopt(_TRIM_THRESHOLD, _LARGEST) == 1)
    return False


def processor_facts() -> dict[str, str]:
    """Return Linux's description of the first processor, such as ``model name`` and ``flags``; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first_processor = file.read().partition("\n\n")[0]  # an empty line follows each
    except OSError:
        return {}
    facts = {}
    for line in first_processor.splitlines():
        name, _, value = line.partition(":")
        facts[name.strip()] = value.strip()
    return facts
