"""How a process computes on a CPU: freed memory that it keeps, threads that wait, and facts about its processor.

**Memory.** glibc, the C library of most Linux distributions, returns large freed blocks to the system: all above
32 MiB, smaller ones until it has adjusted its threshold. The system clears each page of the next block when it is first
touched. A step of training or of a beam search frees and allocates blocks of the same sizes again and again; if they
are kept, there are no such page faults (docs/training.md).

**Threads.** PyTorch divides an operation among threads, which wait for each other at its end. Its OpenMP library,
libgomp, lets them look for the others some 300,000 times before they sleep. If another process uses the core of the
last thread, all other cores do nothing else in that time (docs/training.md).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

#: Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: In bytes; mallopt takes an int. As threshold of mmap, older versions of glibc accept at most 32 MiB (on 64 bits).
_LARGEST, _LARGEST_OF_OLDER = 2**31 - 1, 2**25

#: If one of these is set, the user's choice stands.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

#: libgomp's variable: how often a waiting thread looks for the others before it sleeps. docs/training.md has the times.
_SPIN_COUNT, _SPINS = "GOMP_SPINCOUNT", "2000"

#: From this load on, other processes need the cores that the threads of this one would take.
_BUSY = 0.5

#: With one of these in the environment the user has decided how threads wait.
_WAITING = (_SPIN_COUNT, "OMP_WAIT_POLICY")


def sleep_while_waiting() -> None:
    """Let PyTorch's threads sleep soon while they wait for each other, if other processes use the machine.

    Without others, threads that look for each other are faster (docs/training.md). Call it before PyTorch is imported:
    libgomp reads the environment when it is loaded. Processes that this one starts do the same. What the user has set
    holds.
    """
    has_decided = any(name in os.environ for name in _WAITING)
    if "torch" not in sys.modules and not has_decided and _mean_load() >= _BUSY:
        os.environ[_SPIN_COUNT] = _SPINS


def _mean_load() -> float:
    """Return how many processes ran or waited for a core, the mean over the last minute; 0 if it is unknown."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def describe_waiting(threads: int) -> str:
    """Return a sentence for a log on how the threads of this process wait."""
    settings = [f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ]
    return f"{threads} threads, which wait for each other with {' and '.join(settings) or 'the defaults of PyTorch'}"


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
