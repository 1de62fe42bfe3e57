"""The processes of a probe: each has the model, collects moments of a share of the data, and translates rows."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import torch
from torch import multiprocessing

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.analysis.probe.fit import Moments, collect_moments
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.analysis.probe.translating import SearchOptions, Translator
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, LinearizedTransformer

#: Seconds from one look at the progress of other processes to the next.
_POLL = 0.5


@dataclass(frozen=True)
class Work:
    """What every process needs to know.

    Attributes:
        checkpoint: of the trained model.
        data: the binarised data.
        layers: names of the layers.
        train_subset: part of the data that maps are fitted on.
        search: how to translate.
        cpu: leave GPUs alone.
    """

    checkpoint: str
    data: str
    layers: tuple[str, ...]
    train_subset: str
    search: SearchOptions
    cpu: bool = False


class Worker:
    """A model on a device.

    Args:
        work: what to do.
        loaded: the trained model with the data; it becomes part of the worker's.
        number: of the process, which picks its GPU.
    """

    def __init__(self, work: Work, loaded: LoadedModel, number: int = 0) -> None:
        self.work = work
        gpus = 0 if work.cpu else torch.cuda.device_count()
        self.device = torch.device("cuda", number % gpus) if gpus else torch.device("cpu")
        self.loaded = loaded
        self.model = LinearizedTransformer(self.loaded.model, work.layers).to(self.device)
        self._translator: Translator | None = None

    def collect(self, batches: Sequence[Sequence[int]], progress: Callable[[int], None]) -> Moments:
        """The moments of a share of the data, on the CPU."""
        dataset = self.loaded.sentences(self.work.train_subset)
        moments = collect_moments(self.model, dataset, batches, device=self.device, progress=progress)
        for one in moments.values():
            one.move_to("cpu")
        return moments

    def translate(
        self,
        layer: str | None,
        state: str,
        fit: LinearFit | None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[str]:
        """The translations with one layer replaced, or with none."""
        if self._translator is None:
            self._translator = Translator(self.loaded, self.model, self.work.search, self.device)
        if layer is not None and fit is not None:
            self.model.take_map(layer, fit.weight, fit.bias, state or "pair")
        self.model.replace_only(layer)
        return self._translator.translate(progress)


class Workers:
    """One process, this one, or several.

    Args:
        work: what to do.
        loaded: the trained model with the data, for this process.
        processes: how many.
    """

    def __init__(self, work: Work, loaded: LoadedModel, processes: int = 1) -> None:
        self.work = work
        self.loaded = loaded
        self.processes = processes
        self._own: Worker | None = None
        self._pool: ProcessPoolExecutor | None = None
        self._done: Any = None

    def __enter__(self) -> Workers:
        if self.processes > 1:
            context = multiprocessing.get_context("spawn")
            self._done = context.Value("q", 0)
            numbers = context.Value("i", 0)
            threads = max(1, torch.get_num_threads() // self.processes)
            self._pool = ProcessPoolExecutor(
                self.processes, context, initializer=_start, initargs=(self.work, numbers, self._done, threads)
            )
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                f"one of the --processes {self.processes} died, perhaps for want of memory; try fewer, or a smaller "
                "--max-tokens"
            ) from error

    def collect(self, batches: Sequence[Sequence[int]], progress: Callable[[int], None]) -> list[Moments]:
        """The moments of each process's share of the batches, always cut alike.

        Args:
            batches: numbers of sentences.
            progress: called with the number of target tokens done.
        """
        if self._pool is None:
            done = 0

            def count(tokens: int) -> None:
                nonlocal done
                done += tokens
                progress(done)

            return [self._worker().collect(batches, count)]
        shares = [batches[number :: self.processes] for number in range(self.processes)]
        waiting = [self._pool.submit(_collect, share) for share in shares if share]
        open_: set[Future[Moments]] = set(waiting)
        told = 0
        while open_:
            finished, open_ = wait(open_, timeout=_POLL, return_when=FIRST_COMPLETED)
            for one in finished:
                one.result()  # raises what the process raised
            if (done := self._done.value) > told:
                told = done
                progress(done)
        return [one.result() for one in waiting]

    def translate(
        self,
        rows: Sequence[tuple[str | None, str, LinearFit | None]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Iterator[tuple[int, list[str]]]:
        """Number of a row and its translations, as they are finished.

        Args:
            rows: layer (None for none), state and map of each.
            progress: called with the sentences of a row done and of all, where there is one process.
        """
        if self._pool is None:
            for number, row in enumerate(rows):
                yield number, self._worker().translate(*row, progress)
            return
        open_ = {self._pool.submit(_translate, *row): number for number, row in enumerate(rows)}
        while open_:
            for one in wait(open_, return_when=FIRST_COMPLETED).done:
                yield open_.pop(one), one.result()

    def _worker(self) -> Worker:
        if self._own is None:
            self._own = Worker(self.work, self.loaded)
        return self._own


def load_trained(path: str, data: str) -> LoadedModel:
    """A trained model with its data.

    Raises:
        UserError: as :func:`~fairseq_depthwise.analysis.loaded_model.load_model`, or it has been linearized already.
    """
    loaded = load_model(path, data)
    if loaded.architecture == ARCHITECTURE:
        raise UserError(f"{path} holds a linearized model; give the trained model that it was made from")
    return loaded


# --- in the other processes ------------------------------------------------------------------------------------------

_worker: Worker
_done: Any


def _start(work: Work, numbers: Any, done: Any, threads: int) -> None:
    global _worker, _done  # a process of the pool has one model for all that it is given
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    torch.set_num_threads(threads)
    with numbers.get_lock():
        number = numbers.value
        numbers.value += 1
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    _worker, _done = Worker(work, load_trained(work.checkpoint, work.data), number), done


def _end_with_the_parent() -> None:
    """A parent that is killed cannot tell its processes, which would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _collect(batches: Sequence[Sequence[int]]) -> Moments:
    def count(tokens: int) -> None:
        with _done.get_lock():
            _done.value += tokens

    return _worker.collect(batches, count)


def _translate(layer: str | None, state: str, fit: LinearFit | None) -> list[str]:
    return _worker.translate(layer, state, fit)
