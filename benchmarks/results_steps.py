"""The time of a training step at several depths, turn about in one process: other work slows all of them alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq.tasks.translation import TranslationTask
from machine import use_threads
from results_commands import tell
from side_by_side import Batch, Side, Training, alternate

import fairseq_depthwise  # noqa: F401  # registers the architectures

WARM_UP, ROUNDS = 3, 30


def step_seconds(
    data: Path, arch: str, model: str, depths: Sequence[int], *, max_tokens: int, seed: int, threads: int
) -> dict[int, list[float]]:
    """Seconds of training steps by encoder depth; those of one round have the same batch.

    Args:
        data: a folder that ``fairseq-preprocess`` made.
        arch: fairseq's name of the architecture.
        model: its options but ``--encoder-layers``.
        depths: numbers of encoder layers.
        max_tokens: tokens a batch, as for fairseq.
        seed: of the batches' order.
        threads: threads of PyTorch.

    Raises:
        UserError: fairseq refuses the options.
    """
    use_threads(threads)
    logging.getLogger("fairseq").setLevel(logging.ERROR)  # it has much to say about every model it builds
    sides = {depth: Side(arch, (*model.split(), "--encoder-layers", str(depth))) for depth in depths}
    task, batches = read_batches(data, sides[depths[0]], max_tokens, seed)

    def steps_of(side: Side) -> Callable[[int], None]:
        training = Training(side, task.target_dictionary, "cpu", "fp32")
        return lambda number: training(batches[number + WARM_UP])

    def say(number: int, seconds: dict[str, float]) -> None:
        taken = ", ".join(f"{one:.3f} s with {depth} layers" for depth, one in sorted(seconds.items()))
        tell(f"  {'warm-up' if number < 0 else f'step {number + 1}'}: {taken}")

    works = {str(depth): steps_of(side) for depth, side in sides.items()}
    taken = alternate(works, rounds=ROUNDS, warm_up=WARM_UP, device="cpu", say=say)
    return {int(depth): seconds for depth, seconds in taken.items()}


def read_batches(data: Path, side: Side, max_tokens: int, seed: int) -> tuple[TranslationTask, list[Batch]]:
    """The task of the data and the first batches that a training with this seed sees."""
    cfg = side.configuration("cpu").task
    cfg.data = str(data)
    task = TranslationTask.setup_task(cfg)
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=max_tokens, seed=seed).next_epoch_itr()
    return task, [next(batches) for _ in range(WARM_UP + ROUNDS)]
