"""Elastic trainings that are watched and disturbed from outside: their processes are found, killed and signaled."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

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

    A second run of the same ``name`` appends to it. ``options``: those of ``train``, without ``--save-dir``.
    """

    def __init__(
        self,
        python: Path,
        save_dir: Path,
        *options: object,
        name: str = "run",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._files = [save_dir / f"{name}.{kind}" for kind in ("out", "err")]
        self._mark = f"ELASTIC_RUN={uuid.uuid4()}"
        save_dir.mkdir(parents=True, exist_ok=True)
        with self._files[0].open("ab") as out, self._files[1].open("ab") as err:
            self.process = subprocess.Popen(
                [str(python), "-m", "fairseq_depthwise", "train", "--elastic", *map(str, options),
                 "--save-dir", str(save_dir)],
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
