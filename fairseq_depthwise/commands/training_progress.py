"""What ``train`` shows of a training: a log in ``--save-dir`` for ``report``, and lines for people.

For each epoch and each validation fairseq makes a progress bar, which it hands the metrics. Here every bar also writes
them into the log, and prints a line of our own unless the user chose one of fairseq's formats. Each line of the log is
an object in JSON: metrics as fairseq writes them with ``--log-format json``, or a message.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from logging.handlers import MemoryHandler
from typing import Any

from fairseq.distributed import utils as distributed
from fairseq.logging import progress_bar
from fairseq.tasks import translation

from fairseq_compat.patching import as_configuration

#: The name of the log in --save-dir.
LOG = "train.log"

#: What people read. fairseq lets processes other than the first log warnings only.
logger = logging.getLogger("train")

#: Metrics, which only the file has.
_metrics_logger = logging.getLogger(f"{__name__}.metrics")
_metrics_logger.propagate = False

#: Modules whose messages are the metrics once more.
_SHOWING_METRICS = ("progress_bar", "training_progress")

#: Messages of fairseq with --eval-bleu-print-samples, of each batch of a validation.
_SAMPLES = {"translation": "example hypothesis: ", "reference": "example reference: "}


@contextmanager
def shown_training() -> Iterator[None]:
    """Show the trainings that are started inside the context, in each of their processes."""
    call_main = distributed.call_main

    # A process that fairseq starts for a GPU imports the function by its name.
    def call_shown_main(cfg: Any, main: Any, **options: Any) -> Any:
        return call_main(cfg, main_shown, **options)

    distributed.call_main = call_shown_main
    try:
        yield
    finally:
        distributed.call_main = call_main


def main_shown(cfg: Any, **options: Any) -> None:
    """Train as ``fairseq_cli.train.main`` does, and show it."""
    command: Any = importlib.import_module("fairseq_cli.train")
    cfg = as_configuration(cfg)
    progress = Progress(cfg)
    make_bar, train_epoch = progress_bar.progress_bar, command.train
    progress_bar.progress_bar = partial(progress.make_bar, make_bar)
    command.train = partial(progress.train_epoch, train_epoch)
    try:
        command.main(cfg, **options)
    finally:
        progress_bar.progress_bar, command.train = make_bar, train_epoch
        progress.close()


class Progress:
    """A training in this process: what it logs where, how fast it is, and what the last validation computed."""

    def __init__(self, cfg: Any) -> None:
        common = cfg.common
        self.cfg = cfg
        #: --no-progress-bar is fairseq's format simple.
        self.has_own_lines = common.log_format is None and not common.no_progress_bar
        #: A file that the user chose has the format that the user chose.
        self.is_file_of_fairseq = common.log_file is not None and not self.has_own_lines
        self.validation_loss = ""
        self.sample: dict[str, str] = {}
        self.trainer: Any = None
        self._first_update = 0
        self._started = 0.0
        self._log: _LogOfMetrics | None = None
        if not distributed.is_master(cfg.distributed_training) or self.is_file_of_fairseq:
            return
        if common.log_file is not None:
            open(common.log_file, "a", encoding="utf-8").close()  # now, and not after an hour
            self._begin_log(common.log_file)
            common.log_file = None  # fairseq would write there, too
        elif not cfg.checkpoint.no_save:
            self._begin_log(os.path.join(cfg.checkpoint.save_dir, LOG))

    def _begin_log(self, path: str) -> None:
        file = logging.FileHandler(path, encoding="utf-8", delay=True)  # which appends
        file.setFormatter(_JsonLines())
        self._log = _LogOfMetrics(file)
        for messages in (logging.getLogger(), _metrics_logger):
            messages.addHandler(self._log)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            for messages in (logging.getLogger(), _metrics_logger):
                messages.removeHandler(self._log)
            self._log.file.close()
            self._log.close()

    def make_bar(self, make_bar: Any, iterator: Any, *args: Any, **options: Any) -> Bar:
        """Return the bar of an epoch or a validation."""
        if not self.is_file_of_fairseq:
            options["log_file"] = None
        if self.has_own_lines:
            options["log_format"] = "none"
        self.sample.clear()
        return Bar(make_bar(iterator, *args, **options), self, iterator, options.get("epoch"))

    def train_epoch(self, train_epoch: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        """Train an epoch as ``fairseq_cli.train.train`` does."""
        if self.trainer is None:
            self.trainer = trainer
            self._first_update = trainer.get_num_updates()
            self._started = time.monotonic()
        options: Any = getattr(task, "cfg", None)
        takes_sample = self.has_own_lines and getattr(options, "eval_bleu", False)
        if not takes_sample or getattr(options, "eval_bleu_print_samples", True):
            return train_epoch(cfg, trainer, task, epoch_itr)

        # fairseq logs a translation of each batch; one of each validation is enough.
        options.eval_bleu_print_samples = True
        translation.logger.addFilter(self._take_sample)
        try:
            return train_epoch(cfg, trainer, task, epoch_itr)
        finally:
            translation.logger.removeFilter(self._take_sample)
            options.eval_bleu_print_samples = False

    def _take_sample(self, record: logging.LogRecord) -> bool:
        """Store the first sample of a validation; return whether a message is none, and is to be logged."""
        message = record.getMessage()
        for name, start in _SAMPLES.items():
            if message.startswith(start):
                self.sample.setdefault(name, message.removeprefix(start))
                return False
        return True

    def seconds_left(self, updates: int, epoch: int, iterator: Any) -> float:
        """Return the seconds until --max-update, --max-epoch or --stop-time-hours, whichever comes first."""
        optimization = self.cfg.optimization
        updates_left = math.inf
        if optimization.max_update:
            updates_left = optimization.max_update - updates
        if optimization.max_epoch:
            later_epochs = optimization.max_epoch - epoch
            updates_left = min(updates_left, len(iterator) - iterator.n + later_epochs * len(iterator))
        # Validations and saves are in it.
        pace = (time.monotonic() - self._started) / max(1, updates - self._first_update)
        seconds = updates_left * pace
        if optimization.stop_time_hours > 0:
            trained = self.trainer.cumulative_training_time()
            seconds = min(seconds, optimization.stop_time_hours * 3600 - trained)
        return max(0.0, seconds)


class _LogOfMetrics(MemoryHandler):
    """Writes into a file from the first metrics on, and then what came before: a refused training leaves no log."""

    def __init__(self, file: logging.Handler) -> None:
        super().__init__(capacity=0, target=file, flushOnClose=False)
        self.file = file
        self._has_metrics = False

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name == _metrics_logger.name or record.module not in _SHOWING_METRICS

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802  # logging's name
        self._has_metrics = self._has_metrics or record.name == _metrics_logger.name
        return self._has_metrics


class _JsonLines(logging.Formatter):
    """Writes messages as objects; metrics are such objects already."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.name == _metrics_logger.name:
            return message
        return json.dumps({"time": self.formatTime(record), "logger": record.name, "message": message})


class Bar(progress_bar.BaseProgressBar):
    """A bar of fairseq that also writes into the log, and prints lines for people."""

    def __init__(self, bar: Any, progress: Progress, iterator: Any, epoch: int | None) -> None:
        self.bar = bar
        self.progress = progress
        self.iterator = iterator
        self.epoch = epoch or 1

    def __iter__(self) -> Iterator[Any]:
        return iter(self.bar)

    def __len__(self) -> int:
        return len(self.bar)

    def update_config(self, config: Any) -> None:
        self.bar.update_config(config)

    def log(self, stats: Mapping[str, Any], tag: str | None = None, step: int | None = None) -> None:
        """Show the metrics of ``--log-interval`` updates."""
        values = self._write(stats)
        self.bar.log(stats, tag=tag, step=step)
        if self.progress.has_own_lines:
            logger.info(self._describe_updates(values))

    def print(self, stats: Mapping[str, Any], tag: str | None = None, step: int | None = None) -> None:
        """Show the metrics of an epoch, whose ``tag`` is train, or of a validation."""
        values = self._write(stats, prefix=f"{tag}_")
        self.bar.print(stats, tag=tag, step=step)
        if tag == "train":
            return
        if tag == self.progress.cfg.dataset.valid_subset.split(",")[0]:
            self.progress.validation_loss = str(values.get("loss", ""))
        if self.progress.has_own_lines:
            logger.info(self._describe_validation(values, str(tag)))
            for name, text in self.progress.sample.items():
                logger.info("%s: %s", name, text)

    def _write(self, stats: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Write metrics into the log, as fairseq does in JSON, and return them."""
        values = {name: progress_bar.format_stat(stat) for name, stat in stats.items()}
        named = {prefix + name: value for name, value in values.items()}
        _metrics_logger.info(json.dumps({"epoch": self.epoch, **named}, default=str))
        return values

    def _describe_updates(self, values: Mapping[str, Any]) -> str:
        updates = int(values["num_updates"])
        limit = self.progress.cfg.optimization.max_update
        parts = [f"update {updates:,}{f'/{limit:,}' if limit else ''}", f"epoch {self.epoch}"]
        if "depth" in values:
            parts.append(f"{values['depth']} layers")
        if "loss" in values:
            parts.append(f"loss {values['loss']}")
        if self.progress.validation_loss:
            parts.append(f"validation {self.progress.validation_loss}")
        if "wps" in values:
            parts.append(f"{float(values['wps']):,.0f} tokens/s")
        seconds_left = self.progress.seconds_left(updates, self.epoch, self.iterator)
        if math.isfinite(seconds_left):
            parts.append(f"{timedelta(seconds=round(seconds_left))} left")
        return " | ".join(parts)

    def _describe_validation(self, values: Mapping[str, Any], subset: str) -> str:
        parts = [f"update {int(values['num_updates']):,}", f"epoch {self.epoch}", subset]
        for name, title in (("loss", "loss"), ("ppl", "perplexity"), ("bleu", "BLEU")):
            if name in values:
                parts.append(f"{title} {values[name]}")
        best = [f"best {name[5:]} {value}" for name, value in values.items() if name.startswith("best_")]
        return " | ".join([*parts, *best])
