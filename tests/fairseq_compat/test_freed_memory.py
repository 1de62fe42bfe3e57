"""A process on a CPU keeps what it frees, unless its user has decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

#: Defines ``faults()``, which frees 64 MB twice and prints how many of them had to be mapped anew the second time.
PROGRAM = """
import resource

def faults():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = b"x" * (64 << 20)
        del block
    count = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    print("faults", count * resource.getpagesize() >> 20)

"""

CALLED = "from fairseq_compat.process import keep_freed_memory; keep_freed_memory(); faults()"
FAIRSEQ = """
import fairseq_depthwise
faults()
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from omegaconf import OmegaConf
cfg = OmegaConf.structured(FairseqConfig())
cfg.common.cpu = True
utils.call_main(cfg, lambda cfg: None)
faults()
"""
OURS = """
from fairseq_depthwise import cli
faults()
cli.main(["inspect", "nowhere.pt"])
faults()
"""


def faulted(program: str, **variables: str) -> list[int]:
    """Run a program and return what it measured."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM + program], env={**environment, **variables}, text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    return [int(line.split()[1]) for line in result.stdout.splitlines() if line.startswith("faults ")]


@pytest.mark.parametrize("program", [FAIRSEQ, OURS], ids=["fairseq", "ours"])
def test_a_command_uses_freed_blocks_again_and_importing_changes_nothing(program: str) -> None:
    imported, called = faulted(program)
    assert imported >= 60
    assert called < 8


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_the_users_own_setting_stays(variable: str) -> None:
    assert faulted(CALLED)[0] < 8
    assert faulted(CALLED, **{variable: "131072"})[0] >= 60
