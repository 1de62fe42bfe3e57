"""A process of its own for a row of ``bench.py``: builds the model, and works when it is asked to.

Peak memory, start-up time, a crash and too little memory so belong to that row alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from bench_rows import DECODING, ENCODING, TRAINING, Case
from record import limit_memory, peak_of_process
from turns import Remote, synchronize
from workloads import (
    Batch,
    Decoding,
    Side,
    Training,
    corpus,
    corpus_of_length,
    decoding_batches,
    dictionary_of,
    on_device,
    training_batches,
    unused_copies,
)

MEMORY = "memory"


@dataclass(frozen=True)
class Job:
    """What a worker is for.

    Args:
        side: fairseq's architecture with its options.
        ours: whether the plugin is imported.
        part: training or decoding.
        precision: fp32, bf16, or graphs: compiled, onnx, and int8, which is ONNX, too.
        device: cpu or cuda.
        vocabulary: entries of the dictionary.
        train_tokens: target tokens of a training batch.
        batches: batches of a turn, short sentences to long ones.
        ctranslate2: decode with that program.
        memory: bytes that the process may take on top of what it has after its imports; None: no limit.
    """

    side: Side
    ours: bool
    part: str
    precision: str
    device: str
    vocabulary: int
    train_tokens: int
    batches: int
    ctranslate2: bool = False
    memory: int | None = None


class Worker(Remote):
    """The runner's end of a process that does the work of one row; what it answers: :func:`serve`.

    Attributes:
        start_up: seconds from starting Python to a ready model.
        parameters: of the model.
        unused: parameters on top of these that stock fairseq never reads.

    Raises:
        WorkFailedError: the model could not be built.
    """

    def __init__(self, job: Job) -> None:
        begin = time.perf_counter()
        super().__init__(serve, job)
        try:
            ready = self.answer()
        except BaseException:
            self.close()
            raise
        self.start_up = time.perf_counter() - begin
        self.parameters, self.unused = int(ready["parameters"]), int(ready["unused"])


def make_batches(job: Job, dictionary: Any, case: Case) -> list[Batch]:
    """Return the batches of a case."""
    number, tokens = job.batches, job.train_tokens
    if case.length:
        at_once = case.sentences or max(1, tokens // case.length)
        return decoding_batches(corpus_of_length(dictionary, case.length, at_once), at_once, 1)
    # newstest has 3003 sentences; or else enough for every batch to have its own, which have 5 tokens or more.
    dataset = corpus(dictionary, max(3003, number * (case.sentences or tokens // 5)))
    if case.part == TRAINING:
        return training_batches(dataset, tokens, number)
    return decoding_batches(dataset, case.sentences, number)


def build(job: Job, dictionary: Any) -> Any:
    """Build the row's model, ready for its part."""
    if job.ctranslate2:
        from bench_ctranslate2 import CTranslate2Decoding

        return CTranslate2Decoding(job.side, dictionary, job.device, job.precision)
    if job.precision in ("compiled", "onnx", "int8"):
        from bench_graphs import GraphDecoding

        return GraphDecoding(job.side, dictionary, job.precision)
    return {TRAINING: Training, DECODING: Decoding}[job.part](job.side, dictionary, job.device, job.precision)


def serve(connection: Connection, job: Job) -> None:
    """Answer messages until there are no more.

    The first answer comes once the model is ready: ``parameters``, without stock fairseq's ``unused`` ones. A case is
    answered with the ``seconds`` that all its batches took one after the other, their ``amount`` of target tokens or
    sentences, and the ``steps`` of the decoder; ``MEMORY`` with the bytes at the ``peak``, over what the process had
    before the model was built, and those of ``unused`` parameters among them.
    """
    if job.ours:
        import fairseq_depthwise  # noqa: F401  # registers the models; stock runs without it
    if job.side.arch.endswith("_loop"):
        import unit_loop  # noqa: F401  # registers the loop
    if job.device == "cpu" and job.memory is not None:
        limit_memory(job.memory)
    before = peak_of_process()
    dictionary = dictionary_of(job.vocabulary)
    work = build(job, dictionary)
    synchronize(job.device)
    model = work.trainer.model if job.part == TRAINING else work.model
    unused = sum(parameter.numel() for parameter in unused_copies(model))
    parameters = sum(parameter.numel() for parameter in model.parameters()) - unused
    connection.send({"parameters": parameters, "unused": unused})
    batches: dict[Case, list[Batch]] = {}
    while True:
        message = connection.recv()
        if message == MEMORY:
            peak = torch.cuda.max_memory_allocated() if job.device == "cuda" else peak_of_process() - before
            connection.send({"peak": peak, "unused": work.unused_bytes()})
            continue
        if message not in batches:
            batches[message] = on_device(make_batches(job, dictionary, message), job.device)
        connection.send(take_turn(work, message, batches[message], job.device))


def take_turn(work: Any, case: Case, batches: Sequence[Batch], device: str) -> dict[str, float]:
    """Work through the batches once, and return the answer of :func:`serve`."""
    synchronize(device)
    begin = time.perf_counter()
    for batch in batches:
        if case.part == TRAINING:
            work(batch)
        elif case.part == ENCODING:
            work.encode(batch)
        else:
            work(batch, case.beam)
    synchronize(device)
    seconds = time.perf_counter() - begin
    counted = "ntokens" if case.part == TRAINING else "nsentences"
    steps = sum(work.steps[-len(batches) :]) if case.part == DECODING else 0
    return {"seconds": seconds, "amount": sum(int(batch[counted]) for batch in batches), "steps": steps}
