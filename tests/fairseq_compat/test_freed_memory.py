"""A process on a CPU keeps what it frees, unless its user has decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

#: Frees 64 MB twice; prints what keep_memory says, and the page faults of the second time in MB.
PROGRAM = """
import resource
from fairseq_depthwise.modules.kept_memory import keep_memory

kept = keep_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (64 << 20)
    del block
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, faults * resource.getpagesize() >> 20)
"""


def run(**variables: str) -> tuple[bool, int]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**environment, **variables}, text=True, capture_output=True, check=True
    )
    kept, megabytes = program.stdout.split()
    return kept == "True", int(megabytes)


def test_freed_blocks_are_used_again() -> None:
    kept, megabytes = run()
    assert kept
    assert megabytes < 8


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_the_users_own_setting_stays(variable: str) -> None:
    kept, _ = run(**{variable: "131072"})
    assert not kept
