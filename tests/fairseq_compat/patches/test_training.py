"""Patches of training: each fault, and what is there in its place."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import metrics
from fairseq.models.distributed_fairseq_model import DistributedFairseqModel
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq.optim.lr_scheduler.manual_lr_scheduler import ManualSchedule
from growing_trainer import BATCHES, trainer_of
from many_languages import make_data
from omegaconf import OmegaConf
from probe_checkpoints import model_and_options

from fairseq_compat import UserError
from fairseq_compat.patches import training

RunPython = Callable[..., CompletedProcess[str]]

# One training per folder.


def train_in(folder: Path) -> Any:
    """What is in the folder while it is trained in."""
    saving, distributed = {"save_dir": str(folder), "no_save": False}, {"distributed_rank": 0}
    cfg = OmegaConf.create({"checkpoint": saving, "common": {"fp16": False}, "distributed_training": distributed})
    return training.lock_save_dir(lambda cfg: os.listdir(folder), cfg)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / training.LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        monkeypatch.setattr(training, "LOCK_TIMEOUT", 0.2)
        (tmp_path / training.LOCK).write_text("process 7 elsewhere")
        with pytest.raises(UserError, match=f"--save-dir {tmp_path} is in use by process 7 elsewhere"):
            train_in(tmp_path)
        holder.kill()
        monkeypatch.undo()
        assert train_in(tmp_path) == [training.LOCK]
        assert os.listdir(tmp_path) == []


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    os.link(tmp_path / "file", tmp_path / training.LOCK)
    assert sorted(train_in(tmp_path)) == [training.LOCK, "file"]
    assert (tmp_path / "file").read_text() == "kept"


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


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def distributed(model: Any, backend: str) -> Any:
    """The model as several processes train it."""
    options = SimpleNamespace(
        tpu=False, ddp_backend=backend, device_id=0, broadcast_buffers=False, bucket_cap_mb=25, ddp_comm_hook="none",
        find_unused_parameters=False, gradient_as_bucket_view=False,
    )  # fmt: skip
    return DistributedFairseqModel(options, model, torch.distributed.group.WORLD, torch.device("cpu"))


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("arch", ["transformer", "sdt_transformer"])
def test_the_default_backend_trains_layers_that_are_skipped(arch: str) -> None:
    skipping = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
    model = model_and_options(arch, **skipping)[0].train()
    wrapped = distributed(model, "pytorch_ddp")
    words = torch.tensor([[4, 5, 6, 2]])
    skipped = 0
    for seed in range(6):  # each needs every gradient of the one before
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        wrapped(words, torch.tensor([4]), words)[0].sum().backward()
        gradients = [parameter.grad for parameter in model.encoder.layers.parameters()]
        skipped += all(gradient is None or not gradient.any() for gradient in gradients)
    assert 0 < skipped < 6


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("backend", ["pytorch_ddp", "c10d"])
def test_the_default_backend_trains_the_stock_transformer_on_a_cpu(backend: str) -> None:
    model = model_and_options("transformer")[0].train()
    wrapped = distributed(model, backend)
    words = torch.tensor([[4, 5, 6, 2]])
    for _ in range(2):  # the second needs every gradient of the first
        model.zero_grad()
        wrapped(words, torch.tensor([4]), words)[0].sum().backward()
    assert model.encoder.layers[0].fc1.weight.grad is not None
    assert model.encoder.layers[0].fc1_weight.grad is None


# What a process keeps and opens.

FAULTS = """
import ctypes, resource, sys
from fairseq_compat.process import keep_freed_memory
action, mebibytes = sys.argv[1], int(sys.argv[2])
if action == "keep as an older glibc":
    class Library:
        real = ctypes.CDLL(None)
        def mallopt(self, parameter, value):
            return 0 if parameter == -3 and value > 2**25 else self.real.mallopt(parameter, value)
    ctypes.CDLL = lambda name: Library()
if action != "nothing":
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (mebibytes << 20)
    del block
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize(
    ("action", "mebibytes", "variables", "mapped"),
    [
        ("keep", 64, {}, False),
        ("nothing", 64, {}, True),
        ("keep", 64, {"MALLOC_TRIM_THRESHOLD_": "131072"}, True),
        ("keep as an older glibc", 24, {}, False),  # which has 32 MiB as its largest threshold
    ],
)
def test_freed_blocks_are_used_again(
    action: str, mebibytes: int, variables: dict[str, str], mapped: bool, run_python: RunPython
) -> None:
    """Of a block that is freed and needed again, all or nothing has to be mapped anew."""
    anew = int(run_python(FAULTS, action, str(mebibytes), env=variables).stdout)
    assert (anew >= mebibytes - 4) is mapped


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


# Seconds of training steps.


def test_training_seconds_are_logged_in_milliseconds() -> None:
    with metrics.aggregate(new_root=True) as logged:
        for name in ("train_wall", "other"):
            metrics.log_start_time(name, round=0)
            metrics.log_stop_time(name)
            logged[name].sum = 1.4321
        assert dict(logged.get_smoothed_values()) == {"train_wall": 1.432, "other": 1}


@pytest.mark.parametrize("text", ["{1: 0.5, '2-3': 0.1, '4,5': 0}", "{'1': 0.5, '2,3': 0.1, '4-5': 0.0}"])
def test_rates_by_number(text: str) -> None:
    rates = ManualSchedule.parse_manuallr_args(None, text)
    assert rates == {1: 0.5, 2: 0.1, 3: 0.1, 4: 0.0, 5: 0.0}


@pytest.mark.parametrize("text", ["{1: -0.5}", "{'a': 0.5}", "{1: 'x'}", "{1: None}", "[0.5]", "{1:"])
def test_what_are_no_rates(text: str) -> None:
    with pytest.raises(UserError, match="--epoch2lr"):
        ManualSchedule.parse_manuallr_args(None, text)


def test_bf16_needs_no_scale_window() -> None:
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.optimization.update_freq = [1, 3]
    with pytest.raises(ValueError, match="--fp16-scale-window"):
        FP16Optimizer(cfg, [], None, [])
    cfg.common.bf16 = True
    assert FP16Optimizer(cfg, [], None, []).scaler is None
    assert cfg.common.fp16_scale_window is None
