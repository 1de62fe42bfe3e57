"""A process of its own for one row of ``bench.py``: builds the model, and works when it is told to.

Peak memory, start-up time, a crash and too little memory so belong to that row alone. The runner writes a job as one
line of JSON, then a line for each turn; each is answered by one line. What the answers hold: :func:`serve`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from bench_rows import CTRANSLATE2, DECODING, TRAINING, Case
from side_by_side import (
    Batch,
    Decoding,
    Side,
    Training,
    corpus,
    corpus_of_length,
    decoding_batches,
    dictionary_of,
    on_device,
    peak_of_process,
    synchronise,
    training_batches,
    unused_copies,
)

from fairseq_compat import UserError
from fairseq_compat.process import keep_freed_memory


@dataclass(frozen=True)
class Job:
    """What a worker is for.

    Args:
        family: of the row; ``ours`` says whether the plugin is imported.
        arch: fairseq's architecture.
        options: fairseq's options of the row.
        part: training or decoding.
        precision: fp32 or bf16.
        device: cpu or cuda.
        vocabulary: entries of the dictionary.
        train_tokens: target tokens of a training batch.
        batches: batches of a turn, short sentences to long ones.
        memory: bytes that the process may take on top of what it has after its imports; None: no limit.
    """

    family: str
    ours: bool
    arch: str
    options: tuple[str, ...]
    part: str
    precision: str
    device: str
    vocabulary: int
    train_tokens: int
    batches: int
    memory: int | None = None


class Sentences:
    """The batches of each case, made when it first comes."""

    def __init__(self, job: Job, dictionary: Any) -> None:
        self.job = job
        self.dictionary = dictionary
        self.made: dict[Case, list[Batch]] = {}

    def batches(self, case: Case) -> list[Batch]:
        if case not in self.made:
            self.made[case] = on_device(self._make(case), self.job.device)
        return self.made[case]

    def _make(self, case: Case) -> list[Batch]:
        number, tokens = self.job.batches, self.job.train_tokens
        if case.length:
            at_once = case.sentences or max(1, tokens // case.length)
            return decoding_batches(corpus_of_length(self.dictionary, case.length, at_once), at_once, 1)
        # newstest has 3003 sentences; or else enough for every batch to have its own, which have 5 tokens or more.
        dataset = corpus(self.dictionary, max(3003, number * (case.sentences or tokens // 5)))
        if case.part == TRAINING:
            return training_batches(dataset, tokens, number)
        return decoding_batches(dataset, case.sentences, number)


def limit_memory(limit: int) -> None:
    """Refuse to this process more than so many bytes on top of what it has; sizes in /proc are in KiB."""
    with open("/proc/self/status", encoding="ascii") as file:
        held = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (held + limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def be_the_first_to_go() -> None:
    """Where memory runs out all the same, the system is to end this process and no other."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass  # not Linux


def build(job: Job, dictionary: Any) -> Any:
    """The row's model, ready for its part."""
    side = Side(job.arch, tuple(job.options))
    if job.family == CTRANSLATE2:
        from bench_ctranslate2 import CTranslate2Decoding

        return CTranslate2Decoding(side, dictionary, job.device, job.precision)
    return {TRAINING: Training, DECODING: Decoding}[job.part](side, dictionary, job.device, job.precision)


def serve(job: Job, ask: Callable[[], str], say: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer lines until there are no more.

    The first answer comes once the model is ready: ``parameters``, without stock fairseq's ``unused`` ones. A case is
    answered with the ``seconds`` that all its batches took one after the other, their ``amount`` of target tokens or
    sentences, and the ``steps`` of the decoder; the line ``"memory"`` with the bytes at the ``peak``, over what the
    process had before the model was built, and those of ``unused`` parameters among them.
    """
    if job.ours:
        import fairseq_depthwise  # noqa: F401  # registers the models; stock runs without it
    if job.device == "cpu":
        be_the_first_to_go()
        if job.memory is not None:
            limit_memory(job.memory)
    before = peak_of_process()
    dictionary = dictionary_of(job.vocabulary)
    work = build(job, dictionary)
    synchronise(job.device)
    model = work.trainer.model if job.part == TRAINING else work.model
    unused = sum(parameter.numel() for parameter in unused_copies(model))
    parameters = sum(parameter.numel() for parameter in model.parameters()) - unused
    say({"parameters": parameters, "unused": unused})
    sentences = Sentences(job, dictionary)
    while line := ask():
        message = json.loads(line)
        if message == "memory":
            peak = torch.cuda.max_memory_allocated() if job.device == "cuda" else peak_of_process() - before
            say({"peak": peak, "unused": work.unused_bytes()})
            continue
        case = Case(**message)
        say(take_turn(work, case, sentences.batches(case), job.device))


def take_turn(work: Any, case: Case, batches: Sequence[Batch], device: str) -> dict[str, float]:
    """Work through the batches once: ``seconds``, ``amount`` and ``steps``, see :func:`serve`."""
    synchronise(device)
    begin = time.perf_counter()
    for batch in batches:
        if case.part == TRAINING:
            work(batch)
        else:
            work(batch, case.beam)
    synchronise(device)
    seconds = time.perf_counter() - begin
    counted = "ntokens" if case.part == TRAINING else "nsentences"
    steps = 0 if case.part == TRAINING else sum(work.steps[-len(batches) :])
    return {"seconds": seconds, "amount": sum(int(batch[counted]) for batch in batches), "steps": steps}


def reason_of(error: BaseException) -> str:
    """A sentence about what ended a worker."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(word in text for word in ("can't allocate memory", "out of memory")):
        return f"too little memory: {text[:160] or type(error).__name__}"
    return text[:300] if isinstance(error, UserError) else f"{type(error).__name__}: {text[:300]}"


def main() -> int:
    # Whatever libraries print goes to stderr: stdout has answers only.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    keep_freed_memory()  # as every command that computes on a CPU

    def say(answer: Mapping[str, Any]) -> None:
        print(json.dumps(answer), file=channel, flush=True)

    try:
        serve(Job(**json.loads(sys.stdin.readline())), sys.stdin.readline, say)
    except (Exception, SystemExit) as error:  # whatever it is, the runner says it and goes on without this row
        say({"error": reason_of(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
