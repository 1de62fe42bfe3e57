"""What the tests of ``fairseq_compat`` share: fresh interpreters and stock checkpoints."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairseq_compat.patching import Patch

WORDS = ("a", "b", "c", "d")


def _run_python(
    code: str, *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env={**os.environ, **(env or {})}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python(code, *arguments, env=None)`` runs ``code`` in a fresh interpreter."""
    return _run_python


@pytest.fixture(scope="session")
def patched() -> Callable[..., Any]:
    """``patched(change, name, **names)``: a module with such names after a patch of ``fairseq_compat.patches``."""

    def make(change: Callable[[Any], Any], name: str = "fairseq_cli.train", **names: Any) -> Any:
        module = ModuleType(name)
        vars(module).update(names)
        with Patch(change, (), None).around(module):
            pass
        return module

    return make


@pytest.fixture(scope="session")
def stock_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with nothing but the two dictionaries."""
    folder = tmp_path_factory.mktemp("stock_data")
    for language in ("src", "tgt"):
        lines = "".join(f"{word} {count}\n" for count, word in zip((9, 8, 7, 6), WORDS, strict=True))
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def stock_options(stock_data: Path) -> Namespace:
    """fairseq-train's options for a tiny stock Transformer, as its own parser returns them."""
    from fairseq import options

    arguments = [str(stock_data), "--source-lang", "src", "--target-lang", "tgt", "--arch", "transformer", "--cpu"]
    arguments += ["--max-tokens", "100", "--optimizer", "adam", "--lr", "0.25", "--dropout", "0"]
    for side in ("encoder", "decoder"):
        arguments += [f"--{side}-layers", "2", f"--{side}-embed-dim", "16", f"--{side}-attention-heads", "2"]
        arguments += [f"--{side}-ffn-embed-dim", "32"]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


@pytest.fixture(scope="session")
def stock_task(stock_options: Namespace) -> Any:
    """The translation task of :func:`stock_options`."""
    from fairseq import tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return tasks.setup_task(convert_namespace_to_omegaconf(stock_options).task)


@pytest.fixture
def stock_model(stock_options: Namespace, stock_task: Any) -> Any:
    """A new stock Transformer in evaluation mode, with the same weights in every test."""
    import torch
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    torch.manual_seed(1)
    return stock_task.build_model(convert_namespace_to_omegaconf(stock_options).model).eval()


@pytest.fixture
def stock_state(stock_options: Namespace, stock_model: Any) -> Callable[[str], dict[str, Any]]:
    """``stock_state(style)``: a checkpoint of :func:`stock_model` as fairseq of three ages wrote it.

    ``cfg`` is 0.12, ``args`` is 0.10 and ``oldest`` is 0.6, where the optimizer's state and the position in the data
    lay at the top level.
    """

    def state(style: str) -> dict[str, Any]:
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from omegaconf import OmegaConf

        model = stock_model.state_dict()
        args = copy.deepcopy(stock_options)
        if style == "oldest":
            return {
                "args": args, "model": model, "optimizer": {"state": {}, "param_groups": []}, "best_loss": 3.5,
                "epoch": 2, "batch_offset": 7, "val_loss": 4.5,
            }  # fmt: skip
        history = {
            "criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam",
            "lr_scheduler_state": {"best": None}, "num_updates": 5,
        }  # fmt: skip
        common = {
            "model": model,
            "optimizer_history": [history],
            "extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": 3}, "val_loss": 4.5},
            "last_optimizer_state": {"state": {}, "param_groups": []},
        }
        if style == "args":
            return {"args": args, **common}
        cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True)
        return {"args": None, "cfg": cfg, "criterion": None, "task_state": {}, **common}

    return state
