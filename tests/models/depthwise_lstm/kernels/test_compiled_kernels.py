"""The kernels compiled for real GPUs, none of which is needed: what the interpreter cannot show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_depthwise
from fairseq_compat.versions import installed_version

ARCHES = (80, 90, 100, 120)
SCRIPT = Path(__file__).parents[3] / "support" / "compile_kernels.py"

TRITON = tuple(map(int, (installed_version("triton") or "0.0").split(".")[:2]))

#: Bytes that a program may share on every GPU without asking for more.
SHARED_MEMORY = 48 * 1024


@pytest.mark.parametrize(
    "arches",
    [pytest.param(ARCHES[:1], marks=pytest.mark.slow), pytest.param(ARCHES[1:], marks=pytest.mark.long)],
    ids=str,
)
@pytest.mark.skipif(TRITON < (3, 3), reason="Triton is not installed, or says otherwise what is to be compiled")
def test_every_kernel_compiles_for_every_gpu(arches: tuple[int, ...], tmp_path: Path) -> None:
    """Forward and backward, in float32, bf16, fp16 and autocast, widths 192 to 1024."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arches)], capture_output=True, text=True, timeout=600,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},  # nothing comes from an earlier run
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "FP_FUSION" not in result.stderr  # what another version of Triton would decide otherwise
    programs = [json.loads(line) for line in result.stdout.splitlines()]
    sources = [file.read_text("utf-8") for file in Path(fairseq_depthwise.__file__).parent.rglob("triton_*.py")]
    kernels = {name for source in sources for name in re.findall(r"^def (_\w+_kernel)\(", source, re.M)}
    assert {program["kernel"] for program in programs} == kernels
    assert len(programs) == len(arches) * 4 * len(kernels)
    assert len({(one["arch"], one["kernel"], one["type"]) for one in programs}) == len(programs)
    assert len({(one["kernel"], one["type"], one["width"]) for one in programs}) == len(programs)
    for program in programs:
        header = bytes.fromhex(program["header"])
        assert header[:4] == b"\x7fELF"
        # The flags of the machine code name the GPU, in the first or the second byte.
        assert program["arch"] in header[48:50], program
        assert [target.startswith(f".target sm_{program['arch']}") for target in program["targets"]] == [True], program
        assert program["shared"] <= SHARED_MEMORY, program
