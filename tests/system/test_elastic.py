"""Elastic training on loopback: processes and machines are killed, asked to end, and come back in other numbers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from forked_python import ForkedPython
from training_states import assert_same_state

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.xdist_group("elastic"),
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc"),
]

#: Seconds after which a training that does not end is killed and its test fails.
TIMEOUT = 150

#: A model of width 32 that grows; without dropout, so that it is the same for every number of processes.
GROWING = [
    "--task", "translation_layer_growth", "--arch", "sdt_transformer", "--encoder-block-size=1",
    *(f"--{side}-{size}" for side in ("encoder", "decoder")
      for size in ("embed-dim=32", "attention-heads=2", "ffn-embed-dim=64")),
    "--decoder-layers=1", "--share-all-embeddings", "--optimizer=adam", "--lr=5e-3",
    "--lr-scheduler=inverse_sqrt_restart", "--warmup-updates=2", "--criterion=label_smoothed_cross_entropy",
    "--dropout=0", "--attention-dropout=0", "--activation-dropout=0", "--cpu", "--no-epoch-checkpoints",
    "--disable-validation", "--growth-optimizer-state=keep", "--batch-size=20", "--num-workers=0",
    "--log-format=json", "--log-interval=1", "--distributed-backend=gloo", "--ddp-backend=legacy_ddp",
]  # fmt: skip


class ElasticRun:
    """``fairseq-depthwise train --elastic`` in a session of its own; its output is written beside its checkpoints.

    A second run of the same ``name`` appends to it. ``options``: those of ``train``, without ``--save-dir``;
    ``folder``: the current one.
    """

    def __init__(
        self,
        python: Path,
        save_dir: Path,
        *options: object,
        name: str = "run",
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._files = [save_dir / f"{name}.{kind}" for kind in ("out", "err")]
        self._mark = f"ELASTIC_RUN={uuid.uuid4()}"
        save_dir.mkdir(parents=True, exist_ok=True)
        with self._files[0].open("ab") as out, self._files[1].open("ab") as err:
            self.process = subprocess.Popen(
                [str(python.with_name("fairseq-depthwise")), "train", "--elastic", *map(str, options),
                 "--save-dir", str(save_dir)],
                cwd=folder,
                env={**os.environ, **(environment or {}), **dict([self._mark.split("=")])},
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> str:
        return self._files[1].read_text(encoding="utf-8", errors="replace")

    def updates(self) -> list[int]:
        """The number of each update that was logged, in order; repeated ones twice."""
        return [int(number) for number in re.findall(r'train_inner \| .*"num_updates": "(\d+)"', self.log)]

    def ranks(self) -> dict[int, int]:
        """The training processes that run now: rank to process id."""
        found: dict[int, tuple[int, int]] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            with contextlib.suppress(OSError, ValueError):
                environment = (folder / "environ").read_text(errors="replace").split("\0")
                rank = next((text for text in environment if text.startswith("RANK=")), None)
                if rank is not None and self._mark in environment:
                    parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                    found[int(folder.name)] = (int(rank[5:]), parent)
        # Processes that load data have the same environment.
        return {rank: pid for pid, (rank, parent) in found.items() if parent not in found}

    def launcher(self) -> int:
        """The process id of the launcher: the parent of those that train."""
        process = next(iter(self.ranks().values()))
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    def wait_for(self, happened: Callable[[], object], what: str) -> None:
        """Wait until something has happened; fail where the training ends before, or it takes too long."""
        end = time.monotonic() + TIMEOUT
        while not happened():
            assert self.process.poll() is None, f"ended before {what}: {self.errors[-3000:]}"
            assert time.monotonic() < end, f"{what} did not happen: {self.errors[-3000:]}"
            time.sleep(0.02)

    def wait_for_update(self, number: int) -> None:
        """Wait until an update was logged since the start of the last command."""
        self.wait_for(lambda: number <= max(self.updates(), default=0), f"update {number}")

    def status(self, timeout: float = TIMEOUT) -> int:
        """Wait for the end and return the exit status, negative for a signal; what runs too long is killed."""
        try:
            return self.process.wait(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for the launcher and all training processes, as when a machine is lost."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.ranks().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


#: 30 updates of 3 batches, with a boundary within an epoch and a save between boundaries. What is drawn anew is the
#: same in all processes.
OPTIONS = [*GROWING, "--growth-stages=1:8u,2:8u,3:14u", "--growth-init=random", "--growth-freeze=copied",
           "--update-freq=3", "--save-interval-updates=6", "--keep-interval-updates=1"]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(run_command: RunCommand, copy_reverse_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a training on one process."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    run_command("fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


def assert_same_training(one: Path, other: Path) -> None:
    """Two trainings took as many updates to the same parameters, but for the order of sums."""
    first, second = map(checkpoints.load_checkpoint, (one, other))
    assert first["optimizer_history"][-1]["num_updates"] == second["optimizer_history"][-1]["num_updates"] == 30
    assert first["model"].keys() == second["model"].keys()
    for name, tensor in first["model"].items():
        # Adam turns the sign of a gradient near 0 into a step of full size, so sums in another order may show.
        torch.testing.assert_close(second["model"][name], tensor, rtol=1e-3, atol=1e-3)


@pytest.mark.long
def test_a_killed_process_comes_back_while_the_model_grows(
    forked_python: ForkedPython, copy_reverse_data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    options = ["--processes", 2, "--max-restarts", 1, copy_reverse_data, *OPTIONS]
    run = ElasticRun(forked_python.python, tmp_path, *options)
    run.wait_for_update(10)
    os.kill(run.ranks()[1], signal.SIGKILL)
    killed = time.monotonic()
    run.wait_for_update(20)
    assert time.monotonic() - killed < 60
    assert run.status() == 0, run.errors
    assert_same_training(uninterrupted, tmp_path / "checkpoint_last.pt")


@pytest.mark.long
def test_other_numbers_of_processes_go_on_with_the_same_batches(
    forked_python: ForkedPython, copy_reverse_data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "wandb.py").write_text("open('ran', 'w')")  # fairseq uses what has this name, if it is installed
    for processes, end in ((2, 10), (3, 30)):
        options = ["--processes", processes, copy_reverse_data, *OPTIONS, "--max-update", end]
        run = ElasticRun(forked_python.python, tmp_path, *options, folder=corpus)
        assert run.status() == 0, run.errors
    assert not (corpus / "ran").exists()
    assert run.updates() == list(range(1, 31))
    assert_same_training(uninterrupted, tmp_path / "checkpoint_last.pt")


@pytest.mark.long
def test_a_process_that_is_asked_to_end_lets_all_save(
    forked_python: ForkedPython, copy_reverse_data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    """The launcher starts them again, which is no restart after a failure; no update is taken twice."""
    run = ElasticRun(
        forked_python.python, tmp_path, "--processes", 2, "--max-restarts", 0, copy_reverse_data, *OPTIONS,
        "--save-interval-updates=1000", "--num-workers=1",
    )  # fmt: skip
    run.wait_for_update(3)
    holder = (tmp_path / ".training.lock").read_text().split()[1]
    os.kill(int(holder), signal.SIGUSR1)
    assert run.status() == 0, run.errors
    assert run.updates() == list(range(1, 31))
    assert_same_training(uninterrupted, tmp_path / "checkpoint_last.pt")


@pytest.mark.long
def test_a_launcher_saves_when_asked_to_end_and_leaves_nothing_when_killed(
    run_command: RunCommand, forked_python: ForkedPython, copy_reverse_data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    """With one process, and one that loads data for it, the end is the same bit for bit."""
    python = {"PYTHON_EXEC": sys.executable}  # the real one for the processes, which the launcher's end is to end
    options = ["--processes", 1, copy_reverse_data, *OPTIONS, "--num-workers=1", "--save-interval-updates=1000"]
    run = ElasticRun(forked_python.python, tmp_path, *options, environment=python)
    run.wait_for_update(5)
    launcher = run.launcher()
    [process] = run.ranks().values()
    os.killpg(process, signal.SIGTERM)  # as a scheduler does: everybody gets it
    os.kill(launcher, signal.SIGTERM)
    assert run.status() == 128 + signal.SIGTERM
    assert "Traceback" not in run.log + run.errors
    saved = run.updates()[-1]
    assert checkpoints.updates_in(checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")) == saved < 30

    run = ElasticRun(forked_python.python, tmp_path, *options, environment=python)
    run.wait_for_update(saved + 1)
    [process] = run.ranks().values()
    os.kill(run.launcher(), signal.SIGKILL)
    killed = time.monotonic()
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < killed + 60, "a process outlives its launcher"
        time.sleep(0.05)

    run_command("fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, "--save-dir", tmp_path)
    assert_same_state(uninterrupted, tmp_path / "checkpoint_last.pt")


def test_one_failure_too_many_ends_the_training(
    forked_python: ForkedPython, copy_reverse_data: Path, tmp_path: Path
) -> None:
    run = ElasticRun(forked_python.python, tmp_path, "--processes", 2, "--max-restarts=0", copy_reverse_data, *OPTIONS)
    run.wait_for_update(2)
    os.kill(run.ranks()[1], signal.SIGKILL)
    assert run.status() == 128 + signal.SIGKILL
    [sentence] = [line for line in run.errors.splitlines() if ": error: " in line]
    assert "process 1" in sentence
    assert "--max-restarts 0" in sentence
    assert "Traceback" not in run.errors


@pytest.mark.long
def test_a_training_goes_on_without_a_lost_machine(
    forked_python: ForkedPython, copy_reverse_data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--processes", 1, "--nodes", "1:2", "--rendezvous", f"127.0.0.1:{port}", copy_reverse_data, *OPTIONS]
    first = ElasticRun(forked_python.python, tmp_path, *options, name="first")
    first.wait_for(lambda: _answers(port), "a rendezvous")
    second = ElasticRun(forked_python.python, tmp_path, *options, name="second")
    try:
        both = [first, second]
        first.wait_for(lambda: any(5 in run.updates() for run in both), "an update")
        second.kill()
        lost = time.monotonic()
        assert first.status() == 0, first.errors
        assert time.monotonic() - lost < 60
    finally:
        second.kill()
    assert "for each of 2 processes" in first.log + second.log
    assert "for each of 1 processes" in first.log
    assert_same_training(uninterrupted, tmp_path / "checkpoint_last.pt")


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
