"""The batch of an update does not depend on the number of processes, nor does the place where a run goes on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator

from fairseq_depthwise.elastic.batches import SharedUpdates, batches_of_process

SENTENCES = 53


class Numbers(torch.utils.data.Dataset[int]):
    """A data set whose sentences are their own numbers."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return SENTENCES


def iterator(kind: Any, processes: int, process: int, update_freq: list[int] | None = None) -> Any:
    made = kind(Numbers(), list, [[number] for number in range(SENTENCES)], num_shards=processes, shard_id=process)
    if update_freq is not None:
        made.update_freq = update_freq
    return made


def updates(iterators: list[Any], update_freq: int, count: int | None = None) -> list[set[int]]:
    """The sentences of each update of an epoch, of all processes together."""
    processes = len(iterators)
    sizes = [batches_of_process(update_freq, processes, process) for process in range(processes)]
    epochs = [iter(own.next_epoch_itr()) for own in iterators]
    found = []
    while count is None or len(found) < count:
        groups = [list(itertools.islice(epoch, size)) for epoch, size in zip(epochs, sizes, strict=True)]
        if not any(groups):
            break
        assert all(groups), "a process has no batch where others have, and would not take part"
        found.append({sentence for group in groups for batch in group for sentence in batch})
    return found


@pytest.mark.parametrize("update_freq", [1, 4, 6, 7])
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6])
def test_every_update_has_the_same_sentences(update_freq: int, processes: int) -> None:
    expected = updates([iterator(SharedUpdates, 1, 0, [max(update_freq, processes)])], max(update_freq, processes))
    shared = [iterator(SharedUpdates, processes, process, [update_freq]) for process in range(processes)]
    assert updates(shared, max(update_freq, processes)) == expected
    assert set().union(*expected) == set(range(SENTENCES))


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations((1, 2, 3, 5), 2)))
def test_another_number_of_processes_goes_on_with_the_next_update(before: int, after: int) -> None:
    whole = updates([iterator(SharedUpdates, 1, 0, [6])], 6)
    first = [iterator(SharedUpdates, before, process, [6]) for process in range(before)]
    done = updates(first, 6, count=4)
    state = first[0].state_dict()
    second = [iterator(SharedUpdates, after, process, [6]) for process in range(after)]
    for own in second:
        own.load_state_dict(state)
    assert done + updates(second, 6) == whole


def test_a_stage_has_its_own_batches() -> None:
    own = iterator(SharedUpdates, 2, 1, [4, 8])
    batches = [*own.frozen_batches[1::2]]
    assert own.ordered_batches(1, False, False) == [*batches, []]  # the last update has one batch
    assert own.ordered_batches(9, False, False) == batches  # and here five


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (1, 3), (4, 4)])
def test_fairseqs_own_training_goes_on_where_the_others_were(before: int, after: int) -> None:
    """Without the patch it would repeat batches, leave some out, or be refused, with twice as many processes."""
    first = iterator(EpochBatchIterator, before, 0)
    epoch = first.next_epoch_itr()
    for _ in range(10):
        next(epoch)
    second = iterator(EpochBatchIterator, after, 0)
    second.load_state_dict(first.state_dict())
    assert second.iterations_in_epoch == 10 * before // after


def test_validation_is_not_divided_into_updates() -> None:
    assert iterator(SharedUpdates, 2, 0).ordered_batches(1, False, False)[:2] == [[0], [2]]
