"""How a process computes on a CPU: memory that it keeps, threads that wait, and facts about its processor.

**Memory.** glibc, the C library of most Linux distributions, maps every large block anew and unmaps it when it is
freed, and the system clears each of its pages when it is first touched. A step of training or of a beam search frees
and allocates blocks of the same sizes again and again; if they are kept, there are no page faults
(docs/depthwise_speed.md).

**Threads.** PyTorch divides an operation among threads, which wait for each other at its end. Its OpenMP library,
libgomp, lets them look for the others some 300,000 times before they sleep. If another process uses the core of the
last thread, all other cores do nothing else in that time (docs/training.md).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

#: mallopt's parameters, from glibc's malloc.h, and the largest value: it takes an int.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST = -1, -3, 2**31 - 1

#: libgomp's variable: how often a waiting thread looks for the others before it sleeps. docs/training.md has the times.
_SPIN_COUNT, _SPINS = "GOMP_SPINCOUNT", "2000"

#: With one of these in the environment the user has decided how threads wait.
_WAITING = (_SPIN_COUNT, "OMP_WAIT_POLICY")

#: With one of these in the environment the user has decided about memory.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def sleep_while_waiting() -> None:
    """Let PyTorch's threads sleep soon while they wait for each other, so that other processes slow them down less.

    Call it before PyTorch is imported: libgomp reads the environment when it is loaded. Processes that this one starts
    do the same. What the user has set holds.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAITING):
        os.environ[_SPIN_COUNT] = _SPINS


def describe_waiting(threads: int) -> str:
    """Return a sentence for a log on how the threads of this process wait."""
    settings = [f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ]
    return f"{threads} threads, which wait for each other with {' and '.join(settings) or 'the defaults of PyTorch'}"


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
