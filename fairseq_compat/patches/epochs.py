"""Patches for the position in an epoch: which batches an epoch has, and where in it a run resumes.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch, replaces

logger = logging.getLogger(__name__)

#: Key of an iterator's state: the number of batches that all processes together have taken in the epoch.
BATCHES = "batches_in_epoch"

#: Key of an iterator's state: the sentences of these batches.
SENTENCES = "sentences_in_epoch"


@dataclass(frozen=True)
class Rest:
    """What remained of an epoch when a run resumed within it.

    Attributes:
        epoch: the number of the epoch.
        batches: new batches of the remaining sentences, before shuffling; None if the batches are those of a whole
            epoch.
        taken_before: the sentences that were taken before ``batches`` were made, packed by :func:`pack_flags`.
        first: the number of batches at the beginning of the order, over all processes, that were taken.
        shuffle: whether that order is shuffled.
        start: the number of batches of the epoch that this process counts as taken, for the log and the state.
    """

    epoch: int
    batches: Sequence[Any] | None
    taken_before: str | None
    first: int
    shuffle: bool = True
    start: int = 0


@patch("fairseq.data.iterators", function="EpochBatchIterator.ordered_batches")
def fill_last_group(original: Any, self: Any, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> Any:
    """``--grouped-shuffling`` on several processes never trains on some of the longest sentences.

    fairseq drops the batches that do not fill a group of all processes. Here empty batches complete the last group. If
    each process shuffles its own batches (prefetched data, with ``--fix-batches-to-gpus``), there are no groups of all
    processes, so batches are shuffled one by one.
    """
    batches, is_grouped = self.frozen_batches, self.grouped_shuffling
    # Both attributes are restored below.
    if is_grouped and fix_batches_to_gpus and self._supports_prefetch:
        self.grouped_shuffling = False
    elif is_grouped:
        self._frozen_batches = (*batches, *([] for _ in range(-len(batches) % self.num_shards)))
    ordered = original(self, epoch, fix_batches_to_gpus, shuffle)
    self._frozen_batches, self.grouped_shuffling = batches, is_grouped
    return ordered


@patch("fairseq.data.iterators")
def resume_within_epoch(module: Any) -> None:
    """A run that resumes with other batches, or another number of processes, repeats or skips sentences, or is refused.

    A checkpoint only records how many batches each process has taken, and with another batch size, seed or number of
    processes these are other batches. Here it also records their sentences, and a digest of the order of all batches.
    If the order is the same, a run resumes at its batch; otherwise new batches are made of the sentences not yet taken.
    """
    iterator = module.EpochBatchIterator
    # (a, b): of each a batches in the order over all processes, this process takes b. A subclass may divide them
    # differently.
    iterator.shares = lambda self, epoch: (self.num_shards, 1)
    iterator.rest = None  # a Rest, in the epoch within which the run resumed
    iterator.fixes_batches = False  # next_epoch_itr's fix_batches_to_gpus, which fairseq does not keep
    iterator.batching = None  # set by record_batch_limits
    iterator.counts_sentences = True
    module.GroupedEpochBatchIterator.counts_sentences = False  # its batches are grouped by data set
    iterator.batches_of_whole_epochs = iterator.ordered_batches
    iterator.whole_order = _compute_whole_order
    replaces(iterator, "state_dict")(_save_position)
    replaces(iterator, "load_state_dict")(_resume_at_position)

    @replaces(iterator, "ordered_batches")
    def ordered_batches(original: Any, self: Any, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> Any:
        if self.rest is None or self.rest.epoch != epoch:
            return original(self, epoch, fix_batches_to_gpus, shuffle)
        # Divided anew, since the number of processes may have changed.
        remaining = self.whole_order(epoch, shuffle)[self.rest.first :]
        batches = list(module.ShardedIterator(remaining, self.num_shards, self.shard_id, fill_value=[]))
        if self._supports_prefetch:
            self.dataset.prefetch(list(chain.from_iterable(batches)))
        return batches

    @replaces(iterator, "next_epoch_itr")
    def next_epoch_itr(
        original: Any, self: Any, shuffle: bool = True, fix_batches_to_gpus: bool = False, **options: Any
    ) -> Any:
        if self.rest is not None and self.rest.epoch == self.next_epoch_idx:
            # The epoch keeps the order in which it began, whatever the options are now.
            shuffle = self.rest.shuffle
        else:
            self.fixes_batches = fix_batches_to_gpus
        return original(self, shuffle, fix_batches_to_gpus, **options)


def _compute_whole_order(self: Any, epoch: int, shuffle: bool) -> list[Any]:
    """Return the batches of all processes in the order in which they are taken."""
    # The iterator takes the role of each process in turn; its attributes are restored afterwards.
    saved = dict(vars(self))
    # The order depends on the process only if batches are shuffled per process, or in groups of processes; otherwise
    # it is that of a single process.
    by_process = self.grouped_shuffling or (self.fixes_batches and self._supports_prefetch)
    self.num_shards = self.num_shards if by_process else 1
    self.dataset = SimpleNamespace(prefetch=lambda indices: None)  # nothing is loaded
    if self.rest is not None and self.rest.epoch == epoch and self.rest.batches is not None:
        self._frozen_batches = self.rest.batches
    parts = []
    for process in range(self.num_shards):
        self.shard_id = process
        parts.append(self.batches_of_whole_epochs(epoch, self.fixes_batches, shuffle))
    vars(self).update(saved)
    # All processes have the same number of batches; those that pad a process's share are empty.
    return list(chain.from_iterable(zip(*parts, strict=True)))


def _save_position(original: Any, self: Any) -> dict[str, Any]:
    """Return an iterator's state with the batches and sentences that all processes have taken."""
    state: dict[str, Any] = original(self)
    epoch, position = state["epoch"], state["iterations_in_epoch"]  # at the end of an epoch: the next one, and 0
    rest = self.rest if self.rest is not None and self.rest.epoch == epoch else Rest(epoch, None, None, 0)
    batches, of_process = self.shares(epoch)
    if position == 0 or not self.counts_sentences:
        return {**state, BATCHES: position // of_process * batches}
    count = rest.first + (position - rest.start) // of_process * batches
    order = self.whole_order(epoch, self.shuffle)
    taken = flag_sentences(order[:count], len(self.dataset))
    # A run that resumed with new batches has their order; sentences taken before these were made count, too.
    if rest.taken_before is not None:
        taken |= unpack_flags(rest.taken_before, len(self.dataset))
    sentences = {
        "of": len(self.dataset),
        "order": compute_digest(order),
        "taken": pack_flags(taken),
        "taken_before": rest.taken_before,
        "fixes_batches": self.fixes_batches,
    }
    return {**state, BATCHES: count, SENTENCES: sentences}


def _resume_at_position(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
    """Move an iterator to the position in an epoch that a state records."""
    self.rest = None
    position, epoch = state_dict.get("iterations_in_epoch", 0), state_dict["epoch"]
    if position == 0:
        original(self, state_dict)
        return
    batches, of_process = self.shares(epoch)
    count = state_dict.get(BATCHES, position // of_process * batches)
    if not self.counts_sentences:
        _require_remaining_batches(epoch, count, len(self))
        # For the present number of processes; an update that is not complete is repeated.
        original(self, {**state_dict, "iterations_in_epoch": count // batches * of_process})
        return

    # What the original does, but for the iterator itself, which _start_rest makes.
    self.epoch = epoch
    self._next_epoch_itr = None
    shuffle = state_dict.get("shuffle", True)
    sentences = state_dict.get(SENTENCES)
    if sentences is None:  # a checkpoint of fairseq or of an older version: assume that the batches are the same
        _require_remaining_batches(epoch, count, len(self.frozen_batches))
        rest: Rest | None = Rest(epoch, None, None, count, shuffle)
    elif sentences["of"] != len(self.dataset):
        logger.warning(
            "epoch %d starts from the beginning: the checkpoint was saved within it, with %d sentences of training "
            "data, and there are %d now",
            epoch,
            sentences["of"],
            len(self.dataset),
        )
        return
    else:
        self.fixes_batches = sentences["fixes_batches"]
        rest = _find_rest(self, epoch, count, shuffle, sentences)
    _start_rest(self, epoch, shuffle, rest)


def _require_remaining_batches(epoch: int, taken: int, batches: int) -> None:
    """Raise UserError if an epoch has no batches left."""
    if taken >= batches:
        raise UserError(
            f"the checkpoint was saved after {taken} batches of epoch {epoch}, which has {batches} with this command: "
            "give the --max-tokens, --batch-size and --update-freq of its training, or --reset-dataloader"
        )


def _find_rest(self: Any, epoch: int, count: int, shuffle: bool, sentences: dict[str, Any]) -> Rest | None:
    """Return what remains of an epoch after ``count`` batches; None if nothing does."""
    size, taken_before = len(self.dataset), sentences["taken_before"]
    batches = None if taken_before is None else _make_batches(self, unpack_flags(taken_before, size))
    self.rest = Rest(epoch, batches, taken_before, count, shuffle)
    order = self.whole_order(epoch, shuffle)
    # The same batches in the same order: resume with the batch after the last one taken.
    if compute_digest(order) == sentences["order"]:
        has_more = any(len(batch) for batch in order[count:])  # batches that only pad a process's share are empty
        return self.rest if has_more else None
    # Other options give other batches: make new ones of the sentences not yet taken.
    batches = _make_batches(self, unpack_flags(sentences["taken"], size))
    logger.info("epoch %d continues with new batches: %d sentences are left", epoch, sum(map(len, batches)))
    return Rest(epoch, batches, sentences["taken"], 0, shuffle) if batches else None


def _make_batches(self: Any, taken: Any) -> list[Any]:
    """Return batches, within the limits of the command, of an epoch's sentences that are not ``taken``."""
    sentences = numpy.concatenate(self.frozen_batches)  # in the order of their lengths
    remaining = sentences[~taken[sentences]]
    if not len(remaining):
        return []
    if self.batching is not None:
        return list(self.dataset.batch_by_size(remaining, **self.batching))
    # The limits of batches are unknown: leave out the sentences that were taken.
    batches = []
    for batch in self.frozen_batches:
        if remaining_of_batch := [sentence for sentence in batch if not taken[sentence]]:
            batches.append(remaining_of_batch)
    return batches


def _start_rest(self: Any, epoch: int, shuffle: bool, rest: Rest | None) -> None:
    """Make the iterator over what remains of an epoch, or over the next epoch if nothing does."""
    # The number of this process's batches in a whole epoch, and of those that remain.
    self.rest = None
    whole = len(self.ordered_batches(epoch, self.fixes_batches, shuffle))
    self.rest = rest
    remaining = len(self.ordered_batches(epoch, self.fixes_batches, shuffle)) if rest is not None else 0
    # With --skip-remainder-batch the last batch of an epoch is not used.
    if rest is None or remaining <= int(self.skip_remainder_batch):
        logger.info("nothing is left of epoch %d", epoch)
        self.epoch, self.rest = epoch + 1, None
        return
    start = max(1, whole - remaining)  # fairseq takes a position of 0 for the beginning of an epoch
    self.rest = replace(rest, start=start)
    following = self._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus=self.fixes_batches)
    # The log counts batches from the beginning of the epoch.
    following.n += start
    following.total += start
    self._next_epoch_itr = following


def compute_digest(batches: Sequence[Any]) -> str:
    """Return a digest of batches and their order."""
    # The lengths, too: the same sentences in other batches are another order.
    digest = hashlib.sha256(numpy.array([len(batch) for batch in batches], dtype=numpy.int64).tobytes())
    if batches:
        digest.update(numpy.concatenate(batches).astype(numpy.int64).tobytes())
    return digest.hexdigest()


def flag_sentences(batches: Sequence[Any], size: int) -> Any:
    """Return, for each of ``size`` sentences, whether it is in one of the batches."""
    flags = numpy.zeros(size, dtype=bool)
    if batches:
        flags[numpy.concatenate(batches).astype(numpy.int64)] = True
    return flags


def pack_flags(flags: Any) -> str:
    """Return boolean flags as base64 of their bits, the form in a checkpoint."""
    return base64.b64encode(numpy.packbits(flags).tobytes()).decode("ascii")


def unpack_flags(text: str, size: int) -> Any:
    """Return the ``size`` boolean flags that :func:`pack_flags` packed."""
    bits = numpy.frombuffer(base64.b64decode(text), dtype=numpy.uint8)
    return numpy.unpackbits(bits, count=size).astype(bool)


@patch("fairseq.data.iterators")
def order_and_count_batches_per_epoch(module: Any) -> None:
    """``--skip-remainder-batch`` loses the rest of a resumed epoch, and ``--curriculum`` shuffles no epoch at all.

    fairseq uses the length of a whole epoch even if only a part remains. And the data loader, which serves all epochs
    unless a run is resumed, keeps the order of the first. Here the number of updates is that of the remaining batches,
    and each epoch sets its own order.
    """

    @replaces(module.EpochBatchIterator, "_get_iterator_for_epoch")
    def _get_iterator_for_epoch(
        original: Any, self: Any, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, offset: int = 0
    ) -> Any:
        # Of a data loader that is reused, fairseq sets only the epoch.
        if isinstance(self.batch_sampler, module.FrozenBatchSampler):
            self.batch_sampler.shuffle = shuffle
            self.batch_sampler.fix_batches_to_gpus = fix_batches_to_gpus
        # fairseq would compute the dropped batch from the length of the whole epoch.
        skips = self.skip_remainder_batch
        self.skip_remainder_batch = False
        iterator = original(self, epoch, shuffle, fix_batches_to_gpus, offset)
        self.skip_remainder_batch = skips
        if skips and iterator is not None:
            iterator.take(len(iterator) - 1)
        return iterator

    @replaces(module.GroupedIterator, "__init__")
    def whole_updates(
        original: Any, self: Any, iterable: Any, chunk_size: int, skip_remainder_batch: bool = False
    ) -> None:
        # In batches; a group is an update of --update-freq batches.
        taken = getattr(iterable, "n", 0)
        remaining = len(iterable) - taken
        groups = remaining // chunk_size if skip_remainder_batch else math.ceil(remaining / chunk_size)
        if groups == 0 and taken == 0:
            raise UserError(
                f"an epoch has {remaining} whole batches, fewer than an update with --update-freq {chunk_size}, so "
                "nothing would be trained; give smaller batches, or leave out --skip-remainder-batch"
            )
        if groups == 0:  # after a change of --update-freq, less than an update remains
            groups, skip_remainder_batch = 1, False
        start = math.ceil(taken / chunk_size)
        updates = module._chunk_iterator(iterable, chunk_size, skip_remainder_batch)
        module.CountingIterator.__init__(self, updates, start=start, total=start + groups)
        self.chunk_size = chunk_size
        if skip_remainder_batch:
            # The epoch ends with the last whole update.
            iterable.take(taken + groups * chunk_size)


@patch("fairseq.tasks.fairseq_task", function="FairseqTask.get_batch_iterator")
@patch("fairseq.tasks.translation_multi_simple_epoch", function="TranslationMultiSimpleEpochTask.get_batch_iterator")
def record_batch_limits(original: Any, *args: Any, **kwargs: Any) -> Any:
    """An iterator does not record the limits of its batches, so that no batches can be made of part of an epoch.

    Here it has them as its attribute ``batching``.
    """
    iterator = original(*args, **kwargs)
    call = inspect.signature(original).bind(*args, **kwargs)
    call.apply_defaults()
    names = ("max_tokens", "max_sentences", "required_batch_size_multiple")
    iterator.batching = {name: call.arguments[name] for name in names}
    return iterator


@patch("fairseq.trainer", function="Trainer.get_train_iterator")
def rebuild_iterator_each_epoch(original: Any, self: Any, epoch: int, *args: Any, **options: Any) -> Any:
    """With ``--update-ordered-indices-seed`` each epoch should have its own batches, but only a resumed one has.

    fairseq caches the iterator of the first epoch, with its seed. Here each epoch gets a new one.
    """
    if self.cfg.dataset.update_ordered_indices_seed:
        options["disable_iterator_cache"] = True
    return original(self, epoch, *args, **options)


@patch("fairseq.data.iterators", function="EpochBatchIterator.next_epoch_itr")
def restart_workers_each_epoch(
    original: Any, self: Any, *args: Any, set_dataset_epoch: bool = True, **options: Any
) -> Any:
    """With ``--num-workers``, whose default is 1, all epochs have the masks, crops and other noise of the first one.

    The worker processes that load data outlive an epoch, and never learn the number of the next, so that a resumed run
    has other masks than an uninterrupted one. Here they are restarted for each epoch of training.
    """
    if set_dataset_epoch and self.num_workers > 0:
        self.dataloader = None
    return original(self, *args, set_dataset_epoch=set_dataset_epoch, **options)
