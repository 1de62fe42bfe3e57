"""Trainings that cannot be are refused before anything is read, and all others go on."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_compat.patches.checkpoints import asynchronous_writes
from fairseq_compat.patches.training import fp16_without_gpu

OPTIONS = ("fp16", "cpu", "tpu", "memory_efficient_fp16", "fp16_no_flatten_grads", "write_checkpoints_asynchronously")


def train(patch: ModuleType, *, gpu: bool = False, **given: bool) -> str:
    module: Any = ModuleType("fairseq_cli.train")
    module.torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: gpu))
    module.main = lambda cfg: "trained"
    for _ in patch.adjust(module):
        pass
    options = SimpleNamespace(**{**dict.fromkeys(OPTIONS, False), **given})
    return str(module.main(SimpleNamespace(common=options, checkpoint=options)))


@pytest.mark.parametrize(
    ("cpu", "gpu", "found"), [(True, True, "--cpu is given"), (False, False, "PyTorch finds none")]
)
def test_fp16_without_gpu(cpu: bool, gpu: bool, found: str) -> None:
    with pytest.raises(UserError, match=f"--fp16 needs a GPU, and {found}"):
        train(fp16_without_gpu, cpu=cpu, gpu=gpu, fp16=True)


@pytest.mark.parametrize("given", [{}, {"fp16": True, "memory_efficient_fp16": True}, {"fp16": True, "gpu": True}])
def test_precisions_that_can_be_computed(given: dict[str, bool]) -> None:
    assert train(fp16_without_gpu, **given) == "trained"


@pytest.mark.parametrize("there", [True, False])
def test_asynchronous_writes(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asynchronous_writes, "find_spec", lambda name: there or None)
    assert train(asynchronous_writes) == "trained"
    if there:
        assert train(asynchronous_writes, write_checkpoints_asynchronously=True) == "trained"
    else:
        with pytest.raises(UserError, match="--write-checkpoints-asynchronously needs the package iopath"):
            train(asynchronous_writes, write_checkpoints_asynchronously=True)


CHECK = """
from types import ModuleType, SimpleNamespace
from fairseq_compat.patches.options.assertions_left_out import adjust
module = ModuleType("fairseq_cli.train")
module.main = lambda cfg: print("trained")
for _ in adjust(module): pass
for no_save in (True, False):
    module.main(SimpleNamespace(checkpoint=SimpleNamespace(no_save=no_save)))
"""


@pytest.mark.parametrize(("flags", "trained"), [([], 2), (["-O"], 1)])
def test_assertions_left_out(flags: list[str], trained: int) -> None:
    ended = subprocess.run([sys.executable, *flags, "-c", CHECK], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["trained"] * trained
    assert ("which Python leaves out under -O" in ended.stderr) is (trained == 1)
