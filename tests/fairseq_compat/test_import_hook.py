"""The finder: it touches the listed modules of the supported release, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest

from fairseq_compat import import_hook, process
from fairseq_compat.patches import PATCHES
from fairseq_compat.patching import Patch

RunPython = Callable[..., CompletedProcess[str]]


def later(module: Any) -> None:
    module.order.append("later")


@pytest.fixture
def sample_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of our own that is patched by ``sample_patch``, which records what it sees, and then by ``later``."""
    (tmp_path / "hooked_sample.py").write_text("value = 'from the file'\nseen = list(order)\n", encoding="utf-8")

    def sample_patch(module: Any) -> Iterator[None]:
        module.order = ["before"]
        yield
        module.order.append("after")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(import_hook, "PACKAGES", {*import_hook.PACKAGES, "hooked_sample"})
    patches = [Patch(sample_patch, ("hooked_sample",), None), Patch(later, ("hooked_sample",), None)]
    monkeypatch.setattr("fairseq_compat.patches.PATCHES", patches)
    yield "hooked_sample"
    sys.modules.pop("hooked_sample", None)


def test_patch_runs_around_the_body_of_the_module(sample_module: str) -> None:
    module: Any = importlib.import_module(sample_module)
    assert module.value == "from the file"
    assert module.seen == ["before"]
    assert module.order == ["before", "after", "later"]


def test_every_patch_says_which_fault_it_mends_and_is_for_modules_that_there_are() -> None:
    for patch in PATCHES:
        assert patch.fault, patch
        assert all(importlib.util.find_spec(name) is not None for name in patch.modules), patch
        assert bool(patch.modules) != bool(patch.mentioned), patch


# What an interpreter that only starts pays for.


def test_starting_python_loads_the_hook_once_and_none_of_the_packages(run_python: RunPython) -> None:
    report = "import json, sys; print(json.dumps([sorted(sys.modules), [type(one).__name__ for one in sys.meta_path]]))"
    results = [run_python(f"{code}\n{report}") for code in ("", "import fairseq_compat; fairseq_compat.install()")]
    (loaded, finders), other = (json.loads(result.stdout) for result in results)
    assert finders.count("PatchingFinder") == 1
    assert {name for name in loaded if name.startswith("fairseq")} == {
        "fairseq_compat", "fairseq_compat.errors", "fairseq_compat.import_hook"
    }  # fmt: skip
    assert not {"torch", "numpy", "hydra", "omegaconf", "sacrebleu"}.intersection(loaded)
    assert other == [loaded, finders]


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp is the OpenMP library of PyTorch for Linux")
@pytest.mark.parametrize("command", ["fairseq_cli", "fairseq_depthwise.cli"])
def test_waiting_threads_of_a_command_sleep_soon_on_a_busy_machine(command: str, run_python: RunPython) -> None:
    """PyTorch's OpenMP library prints what it has read when PyTorch is imported."""
    busy = "import os; os.getloadavg = lambda: (2.0, 2.0, 2.0)"
    shown = run_python(f"{busy}; import {command}, torch", env={"OMP_DISPLAY_ENV": "verbose"}).stderr
    (spins,) = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", shown)
    assert 0 < int(spins) < 300_000, "the default"


@pytest.mark.parametrize(
    ("variables", "load", "changed"),
    [
        ({}, 1.5, True),
        ({}, 0.1, False),
        ({"GOMP_SPINCOUNT": "7"}, 1.5, False),
        ({"OMP_WAIT_POLICY": "active"}, 1.5, False),
    ],
)
def test_how_threads_wait_is_the_users_choice(
    variables: dict[str, str], load: float, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "environ", dict(variables))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    process.sleep_while_waiting()
    assert (os.environ != variables) is changed


def test_a_check_is_called_before_a_function_with_the_arguments_that_it_names() -> None:
    calls = []

    def check(second: int, first: int) -> None:
        calls.append((first, second))

    def function(first: int, second: int = 2, *more: int, **options: int) -> int:
        return first + second + sum(more) + sum(options.values())

    module: Any = ModuleType("sample")
    vars(module)["function"] = function
    with Patch(check, ("sample",), None, before="function").applied_to(module):
        pass
    assert (module.function(1), module.function(1, 5, 7, third=9)) == (3, 22)
    assert calls == [(1, 2), (1, 5)]
