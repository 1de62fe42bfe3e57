"""``--fp16`` is refused before anything is read where its weights would need a GPU."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_compat.patches.fp16_without_gpu import adjust


def train(*, gpu: bool, **given: bool) -> str:
    module: Any = ModuleType("fairseq_cli.train")
    module.torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: gpu))
    module.main = lambda cfg: "trained"
    for _ in adjust(module):
        pass
    names = ("fp16", "cpu", "tpu", "memory_efficient_fp16", "fp16_no_flatten_grads")
    return str(module.main(SimpleNamespace(common=SimpleNamespace(**{**dict.fromkeys(names, False), **given}))))


@pytest.mark.parametrize(
    ("cpu", "gpu", "found"), [(True, True, "--cpu is given"), (False, False, "PyTorch finds none")]
)
def test_no_gpu(cpu: bool, gpu: bool, found: str) -> None:
    with pytest.raises(UserError, match=f"--fp16 needs a GPU, and {found}; leave --fp16 out, or give --bf16"):
        train(cpu=cpu, gpu=gpu, fp16=True)


@pytest.mark.parametrize("given", [{}, {"fp16": True, "memory_efficient_fp16": True}, {"fp16": True, "gpu": True}])
def test_what_can_be_computed(given: dict[str, bool]) -> None:
    assert train(**{"gpu": False, **given}) == "trained"
