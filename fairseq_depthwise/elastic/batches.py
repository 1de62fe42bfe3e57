"""Share the batches of an update among the processes, however many there are.

fairseq's ``--update-freq`` counts the batches of each process. Here it counts the batches of an update over all
processes, so each update has the same sentences, however many processes there are. If the number of batches is not a
multiple of the number of processes, some processes take one more.
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

#: fairseq's interval between increases of the loss scale of fp16, in batches.
_SCALE_WINDOW = 2**14


def share_updates(train: Any) -> None:
    """Patch the module ``fairseq_cli.train`` so that the processes share the batches of an update."""
    # Tasks create their iterators by this name.
    iterators.EpochBatchIterator = SharedUpdates

    @replaces(Trainer, "get_train_iterator")
    def get_train_iterator(original: Any, self: Any, *args: Any, **options: Any) -> Any:
        iterator = original(self, *args, **options)
        iterator.update_freq = list(self.cfg.optimization.update_freq)
        return iterator

    def grouped(iterator: Any, update_freq: int, **options: Any) -> Any:
        processes = get_global_world_size()
        batches = max(update_freq, processes)
        return iterators.GroupedIterator(iterator, batches_of_process(batches, processes, get_global_rank()), **options)

    train.iterators = Overlay(iterators, GroupedIterator=grouped)

    @replaces(train, "main")
    def main(original: Any, cfg: Any) -> None:
        cfg = as_configuration(cfg)
        processes, update_freq = get_global_world_size(), cfg.optimization.update_freq[0]
        # Every process takes part in every update, with one batch at least.
        batches = max(update_freq, processes)
        logger.log(
            logging.INFO if batches == update_freq else logging.WARNING,
            "an update has %d batches, up to %d for each of %d processes (--update-freq %d)",
            batches,
            batches_of_process(batches, processes, 0),
            processes,
            update_freq,
        )
        # Stock fairseq derives the window from the number of processes; the loss scale must not depend on it.
        if cfg.common.fp16_scale_window is None:
            cfg.common.fp16_scale_window = max(1, _SCALE_WINDOW // update_freq)
        original(cfg)


def batches_of_process(batches: int, processes: int, process: int) -> int:
    """Return how many of the batches of an update a process takes."""
    return len(range(process, batches, processes))


class SharedUpdates(iterators.EpochBatchIterator):
    """An iterator over batches that gives each process its share of each update."""

    #: Batches of an update over all processes, for each epoch, the last for all later ones; None for validation.
    update_freq: Sequence[int] | None = None
    num_shards: int
    shard_id: int

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> list[Any]:
        """Return the batches of this process in an epoch.

        Where an update has fewer batches than there are processes, this may be an empty batch, so that every process
        takes part in every update.
        """
        if self.update_freq is None:
            return list(super().ordered_batches(epoch, fix_batches_to_gpus, shuffle))

        # As a single shard fairseq's iterator returns the batches of all processes.
        processes, process = self.num_shards, self.shard_id
        self.num_shards, self.shard_id = 1, 0
        batches = super().ordered_batches(epoch, fix_batches_to_gpus, shuffle)
        self.num_shards, self.shard_id = processes, process

        update_size, _ = self.shares(epoch)
        shared: list[Any] = []
        for start in range(0, len(batches), update_size):
            update = batches[start : start + update_size]
            shared += update[process::processes] or [[]]
        return shared

    def whole_order(self, epoch: int, shuffle: bool) -> list[Any]:
        """Return the batches of all processes in order, which is the same for any number of processes."""
        processes = self.num_shards
        self.num_shards = 1
        order: list[Any] = super().whole_order(epoch, shuffle)
        self.num_shards = processes
        return order

    def shares(self, epoch: int) -> tuple[int, int]:
        """Return how many batches an update of an epoch has, and how many of them this process takes.

        The position in an epoch is also saved in batches of all processes, which a run with another number of them may
        have reached.
        """
        if self.update_freq is None:
            return self.num_shards, 1
        update_freq = self.update_freq[min(epoch, len(self.update_freq)) - 1]
        batches = max(update_freq, self.num_shards)
        return batches, batches_of_process(batches, self.num_shards, self.shard_id)
