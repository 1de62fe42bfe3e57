"""Patches of training: each fault, and what is there in its place."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models.distributed_fairseq_model import DistributedFairseqModel
from growing_trainer import BATCHES, trainer_of
from many_languages import make_data
from omegaconf import OmegaConf
from probe_checkpoints import model_and_options

from fairseq_compat import UserError
from fairseq_compat.patches import training

Patched = Callable[..., Any]
RunPython = Callable[..., CompletedProcess[str]]

# One training per folder.


def train_in(folder: Path, patched: Patched) -> Any:
    """What is in the folder while it is trained in."""
    seen: list[Any] = []
    utils = SimpleNamespace(is_master=lambda cfg: True)
    module = patched(
        training.one_training_per_folder, distributed_utils=utils, main=lambda cfg: seen.append(os.listdir(folder))
    )
    options = {"checkpoint": {"save_dir": str(folder), "no_save": False}, "distributed_training": {}}
    module.main(OmegaConf.create(options))
    return seen[0]


HOLDER = """
import os, sys, time
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("locked", flush=True)
if os.fork() == 0:  # as a process that reads data, which outlives a kill for a while
    time.sleep(1)
else:
    time.sleep(60)
"""


def test_a_second_training_is_refused_until_the_first_is_killed(
    patched: Patched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / training.LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        monkeypatch.setattr(training, "PATIENCE", 0.2)
        (tmp_path / training.LOCK).write_text("process 7 elsewhere")
        with pytest.raises(UserError, match=f"--save-dir {tmp_path} is in use by process 7 elsewhere"):
            train_in(tmp_path, patched)
        holder.kill()
        monkeypatch.undo()
        assert train_in(tmp_path, patched) == [training.LOCK]
        assert os.listdir(tmp_path) == []


# When it ends.


@pytest.mark.parametrize(
    ("limit", "done", "patience", "failed", "trains"),
    [
        (10, 9, -1, 0, True), (10, 10, -1, 0, False), (10, 11, -1, 0, False), (0, 99, -1, 0, True),
        (None, 5, 3, 2, True), (None, 5, 3, 3, False), (None, 5, -1, 3, True),
    ],
)  # fmt: skip
def test_a_finished_run_stays_finished(
    limit: int | None, done: int, patience: int, failed: int, trains: bool, patched: Patched
) -> None:
    counts = SimpleNamespace(best=2.5, num_runs=failed)
    module = patched(training.finished_runs, train=lambda *given: ([1.5], False), should_stop_early=counts)
    cfg = SimpleNamespace(optimization=SimpleNamespace(max_update=limit), checkpoint=SimpleNamespace(patience=patience))
    found = module.train(cfg, SimpleNamespace(get_num_updates=lambda: done), None, None)
    assert found == (([1.5], False) if trains else ([None], True))


class SavingTrainer:
    """The part of fairseq's that reads and writes checkpoints."""

    saved: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"extra_state": {"train_iterator": {}}}

    def load_checkpoint(
        self, filename: str, reset_optimizer: bool = False, reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None, reset_meters: bool = False,
    ) -> Any:  # fmt: skip
        return self.saved


def test_a_resumed_run_goes_on_counting_for_patience(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    command: Any = ModuleType("fairseq_cli.train")
    command.should_stop_early = SimpleNamespace()
    counts = vars(command.should_stop_early)
    monkeypatch.setitem(sys.modules, "fairseq_cli.train", command)
    trainer = patched(training.patience, Trainer=type("Trainer", (SavingTrainer,), {})).Trainer()
    assert trainer.state_dict()["extra_state"] == {"train_iterator": {}}  # before the first validation
    assert trainer.load_checkpoint("none.pt") is None
    counts.update(best=2.5, num_runs=4)
    trainer.saved = trainer.state_dict()["extra_state"]
    counts.clear()  # another process
    for reset in ({"reset_optimizer": True}, {"reset_meters": True}):
        trainer.load_checkpoint("last.pt", **reset)
        assert counts == {}
    trainer.load_checkpoint("last.pt", False, False, None, reset_meters=False)
    assert counts == {"best": 2.5, "num_runs": 4}


# Updates.


@pytest.mark.parametrize("empty", [[], {}, None])
def test_an_empty_batch_changes_nothing(empty: Any) -> None:
    trained = []
    for more in ([], [empty]):
        trainer = trainer_of()
        for _ in range(2):
            trainer.train_step([BATCHES[0], *more])
        trained.append(trainer.model.state_dict())
    for name, parameter in trained[0].items():
        assert torch.equal(parameter, trained[1][name]), name


# Devices and processes.


def parsed(stock_data: Path, *added: str, **keywords: Any) -> Namespace:
    from fairseq import options

    arguments = [str(stock_data), "--arch", "transformer", "--optimizer", "adam", *added]
    return options.parse_args_and_arch(options.get_training_parser(), arguments, **keywords)


def test_bf16_is_no_tpu(stock_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("--bf16", "--memory-efficient-bf16"):
        assert parsed(stock_data, option).bf16
        assert not parsed(stock_data, option).tpu
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: object())
    assert parsed(stock_data, "--bf16").tpu  # the fault itself


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("backend", ["pytorch_ddp", "c10d"])
def test_the_default_backend_trains_the_stock_transformer_on_a_cpu(backend: str) -> None:
    model = model_and_options("transformer")[0].train()
    options = SimpleNamespace(
        tpu=False, ddp_backend=backend, device_id=0, broadcast_buffers=False, bucket_cap_mb=25, ddp_comm_hook="none",
        find_unused_parameters=False, gradient_as_bucket_view=False,
    )  # fmt: skip
    wrapped = DistributedFairseqModel(options, model, torch.distributed.group.WORLD, torch.device("cpu"))
    words = torch.tensor([[4, 5, 6, 2]])
    for _ in range(2):  # the second needs every gradient of the first
        model.zero_grad()
        wrapped(words, torch.tensor([4]), words)[0].sum().backward()
    assert model.encoder.layers[0].fc1.weight.grad is not None
    assert model.encoder.layers[0].fc1_weight.grad is None


# What a process keeps and opens.

FAULTS = """
import resource, sys
from fairseq_compat.process import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (64 << 20)
    del block
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("kept", "variables", "mapped"),
    [("keep", {}, False), ("not", {}, True), ("keep", {"MALLOC_TRIM_THRESHOLD_": "131072"}, True)],
)
def test_freed_blocks_are_used_again(kept: str, variables: dict[str, str], mapped: bool, run_python: RunPython) -> None:
    """Of 64 MB that are freed and needed again so many have to be mapped anew."""
    assert (int(run_python(FAULTS, kept, env=variables).stdout) >= 60) is mapped


LOADING = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1000))
from fairseq.data import data_utils
kept = []
for language in range(40):
    for side in ("en", f"l{language:02d}"):
        kept.append(data_utils.load_indexed_dataset(f"{sys.argv[1]}/train.en-l{language:02d}.{side}"))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_of_open_files_is_raised(run_python: RunPython, tmp_path: Path) -> None:
    result = run_python(LOADING, make_data(tmp_path / "data", 40, parts={"train": 1, "valid": 1}))
    assert result.stdout.split() == ["1000", "1000"], result.stderr
