"""The batch of an update, shared by as many processes as there are.

fairseq's ``--update-freq`` counts batches of each process, here those of an update over all processes: each update has
the same sentences, however many processes there are; where they do not divide the batches, some take one more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fairseq.data import iterators
from fairseq.distributed.utils import get_global_rank, get_global_world_size
from fairseq.trainer import Trainer

from fairseq_compat.patching import Overlay, as_configuration, replaces

logger = logging.getLogger(__name__)

_SCALE_WINDOW = 2**14  # fairseq's interval between increases of the loss scale of fp16, in batches


def share_updates(train: Any) -> None:
    """Let the module ``fairseq_cli.train`` divide the batches of an update among the processes."""
    iterators.EpochBatchIterator = SharedUpdates  # tasks make them by this name

    @replaces(Trainer, "get_train_iterator")
    def get_train_iterator(original: Any, self: Any, *args: Any, **options: Any) -> Any:
        iterator = original(self, *args, **options)
        iterator.update_freq = list(self.cfg.optimization.update_freq)
        return iterator

    def grouped(iterator: Any, update_freq: int, **options: Any) -> Any:
        processes = get_global_world_size()
        own = batches_of_process(max(update_freq, processes), processes, get_global_rank())
        return iterators.GroupedIterator(iterator, own, **options)

    train.iterators = Overlay(iterators, GroupedIterator=grouped)

    @replaces(train, "main")
    def main(original: Any, cfg: Any) -> None:
        cfg = as_configuration(cfg)
        processes, asked = get_global_world_size(), cfg.optimization.update_freq[0]
        batches = max(asked, processes)
        logger.log(
            logging.INFO if asked == batches else logging.WARNING,
            "an update has %d batches, up to %d for each of %d processes (--update-freq %d)",
            batches, batches_of_process(batches, processes, 0), processes, asked,
        )  # fmt: skip
        if cfg.common.fp16_scale_window is None:  # the loss scale must not depend on the number of processes either
            cfg.common.fp16_scale_window = max(1, _SCALE_WINDOW // asked)
        original(cfg)


def batches_of_process(batches: int, processes: int, process: int) -> int:
    """Return how many of the batches of an update a process takes."""
    return len(range(process, batches, processes))


class SharedUpdates(iterators.EpochBatchIterator):
    """An iterator over batches that gives each process its part of each update."""

    #: Batches of an update over all processes, for each epoch, the last for all later ones; None for validation.
    update_freq: Sequence[int] | None = None
    num_shards: int
    shard_id: int

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> list[Any]:
        """Return the batches of this process in an epoch; where an update has too few, an empty one, to take part."""
        if self.update_freq is None:
            return list(super().ordered_batches(epoch, fix_batches_to_gpus, shuffle))
        processes, process = self.num_shards, self.shard_id
        self.num_shards, self.shard_id = 1, 0
        batches = super().ordered_batches(epoch, fix_batches_to_gpus, shuffle)
        self.num_shards, self.shard_id = processes, process
        size, _ = self.shares(epoch)
        parts = (batches[first : first + size][process::processes] for first in range(0, len(batches), size))
        return [batch for part in parts for batch in part or [[]]]

    def whole_order(self, epoch: int, shuffle: bool) -> list[Any]:
        """Return the batches of all processes in order, which is the same for any number of processes."""
        processes = self.num_shards
        self.num_shards = 1
        order: list[Any] = super().whole_order(epoch, shuffle)
        self.num_shards = processes
        return order

    def shares(self, epoch: int) -> tuple[int, int]:
        """Return the batches of an update of an epoch, and how many of them this process takes.

        The place in an epoch is also saved in batches of all processes, which another number of them may have reached.
        """
        if self.update_freq is None:
            return self.num_shards, 1
        batches = max(self.update_freq[min(epoch, len(self.update_freq)) - 1], self.num_shards)
        return batches, batches_of_process(batches, self.num_shards, self.shard_id)
