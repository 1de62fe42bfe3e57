"""A process on a CPU keeps what it frees, unless its user has decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

#: Frees 64 MB twice; prints whether memory is kept, and the page faults of the second time in MB.
PROGRAM = """
import resource
START

for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (64 << 20)
    del block
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults * resource.getpagesize() >> 20)
"""


CALLED = "from fairseq_compat.process import keep_freed_memory; keep_freed_memory()"
FAIRSEQ = """
import fairseq_depthwise
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from omegaconf import OmegaConf
cfg = OmegaConf.structured(FairseqConfig())
cfg.common.cpu = True
utils.call_main(cfg, lambda cfg: None)
"""
OURS = """
from fairseq_depthwise import cli
try:
    cli.main(["inspect", "nowhere.pt"])
except SystemExit:
    pass
"""


def faulted(start: str, **variables: str) -> int:
    """Start as is written, free 64 MB, and return how many MB had to be mapped anew for the same block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("START", start)],
        env={**environment, **variables},
        text=True,
        capture_output=True,
        check=True,
    )
    return int(program.stdout.split()[-1])


@pytest.mark.parametrize("start", [CALLED, FAIRSEQ, OURS], ids=["called", "fairseq", "ours"])
def test_a_command_uses_freed_blocks_again(start: str) -> None:
    assert faulted(start) < 8


def test_importing_the_plugin_changes_nothing() -> None:
    assert faulted("import fairseq_depthwise") >= 60


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_the_users_own_setting_stays(variable: str) -> None:
    assert faulted(CALLED, **{variable: "131072"}) >= 60
