"""The processes of a probe: each has the model, collects the moments of a share of the data, and translates."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from torch import multiprocessing
from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_trained
from fairseq_depthwise.analysis.probe.fit import ModelMoments, collect_moments
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.models.linearized.model import LinearizedTransformer
from fairseq_depthwise.serving.beam_search import BeamOptions, BeamSearch

#: ``run(method, calls)`` calls a method of :class:`ProbeWorker` for each tuple of arguments and yields its results.
Run = Callable[[str, Sequence[tuple[Any, ...]]], Iterator[Any]]


@dataclass(frozen=True)
class ProbeOptions:
    """How to probe a model.

    Attributes:
        data: the binarized data.
        layers: to replace, ``encoder.1,decoder.6`` or ``all``.
        states: for layers with two outputs, which of ``linearized.layer.STATES`` to replace.
        train_subset: part of the data to fit on.
        max_tokens_used: target tokens to fit on; 0 for all.
        max_tokens: size of a batch.
        subset, beam, length_penalty: what to translate, and how.
        post_process: fairseq's name for the conversion of subwords to words; None to guess it from the dictionary.
        metric, tokenize: how to score, as ``fairseq-depthwise score``.
        checkpoints: write a checkpoint for each row.
        processes: number of processes.
        cpu: do not use GPUs.
    """

    data: str
    layers: str = "all"
    states: tuple[str, ...] = ("pair", "output")
    train_subset: str = "train"
    max_tokens_used: int = 1_000_000
    max_tokens: int = 4096
    subset: str = "test"
    beam: int = 4
    length_penalty: float = 0.6
    post_process: str | None = None
    metric: str = "tokenized"
    tokenize: str = "13a"
    checkpoints: bool = True
    processes: int = 1
    cpu: bool = False


class ProbeWorker:
    """A model on a device.

    Args:
        loaded: the trained model with the data; it becomes part of the worker's model.
        layers: names of the layers to replace.
        options: how to probe.
        number: of the process, which selects its GPU.
    """

    def __init__(self, loaded: LoadedModel, layers: Sequence[str], options: ProbeOptions, number: int = 0) -> None:
        gpus = 0 if options.cpu else torch.cuda.device_count()
        self.device = torch.device("cuda", number % gpus) if gpus else torch.device("cpu")
        self.loaded = loaded
        self.options = options
        self.model = LinearizedTransformer(loaded.model, layers).to(self.device)

    def collect(self, batches: Sequence[Sequence[int]]) -> ModelMoments:
        """Return the moments of a share of the data, on the CPU."""
        dataset = self.loaded.sentences(self.options.train_subset)
        moments = collect_moments(self.model, dataset, batches, device=self.device)
        for layer in moments.values():
            layer.move_to("cpu")
        return moments

    def translate(self, layer: str, state: str, fit: LinearFit | None) -> list[str]:
        """Return the translations with a layer replaced, or with none where there is no fit."""
        if fit is not None:
            self.model.take_map(layer, fit.weight, fit.bias, state or "pair")
        self.model.replace_only(None if fit is None else layer)
        return translate_subset(self.loaded, self.model, self.options, self.device)


def translate_subset(
    loaded: LoadedModel, model: BaseFairseqModel, options: ProbeOptions, device: torch.device
) -> list[str]:
    """Translate a part of the data, in its order; sentences that are too long for the model stay empty.

    Raises:
        UserError: there is no such part of the data, or it is empty.
    """
    count = len(loaded.sentences(options.subset))
    batches = loaded.batches(options.subset, max_sentences=count, max_tokens=options.max_tokens)
    search = BeamSearch(loaded.task, [model], BeamOptions(options.beam, options.length_penalty), device)
    translations = [""] * count
    for batch in tqdm(batches, unit=" batches", leave=False, disable=options.processes > 1 or None):
        for index, hypotheses in zip(batch["id"].tolist(), search.hypotheses(batch), strict=True):
            translations[index] = search.text(hypotheses[0]["tokens"], options.post_process)
    return translations


@contextmanager
def running_workers(loaded: LoadedModel, layers: Sequence[str], options: ProbeOptions) -> Iterator[Run]:
    """Start as many processes as the options say, or use this one.

    Raises:
        UserError: a process died.
    """
    if options.processes == 1:
        worker = functools.cache(lambda: ProbeWorker(loaded, layers, options))
        yield lambda method, calls: (getattr(worker(), method)(*arguments) for arguments in calls)
        return
    context = multiprocessing.get_context("spawn")
    numbers = context.SimpleQueue()
    for number in range(options.processes):
        numbers.put(number)
    threads = max(1, torch.get_num_threads() // options.processes)
    arguments = (loaded.path, layers, options, numbers, threads)
    with ProcessPoolExecutor(options.processes, context, _start, arguments) as pool:
        try:
            yield lambda method, calls: pool.map(_call, repeat(method), calls)
        except BrokenProcessPool as error:
            raise UserError(
                f"one of the --processes {options.processes} died, perhaps for lack of memory; try fewer, or a smaller "
                "--max-tokens"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


# --- in the other processes ------------------------------------------------------------------------------------------

_worker: ProbeWorker


def _start(path: str, layers: Sequence[str], options: ProbeOptions, numbers: Any, threads: int) -> None:
    global _worker  # the one model of the process
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    _worker = ProbeWorker(load_trained(path, options.data), layers, options, numbers.get())


def _exit_with_parent() -> None:
    """Exit when the parent is killed, as the pool's processes would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(_worker, method)(*arguments)
