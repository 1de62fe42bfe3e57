"""The batches of an epoch, and that a run which goes on within one takes what is left of it, and nothing twice."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy
import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator, GroupedEpochBatchIterator, GroupedIterator
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_compat import UserError
from fairseq_depthwise.elastic.batches import SharedUpdates, batches_of_process

SENTENCES = 53


class Numbers(torch.utils.data.Dataset[int]):
    """A data set whose sentences are their own numbers, of which it has ``size``, and those below 3 are left out."""

    def __init__(self, size: int = SENTENCES, prefetch: bool = False) -> None:
        self.size, self.supports_prefetch, self.prefetched = size, prefetch, set(range(0 if prefetch else size))

    def __getitem__(self, index: int) -> int:
        assert index in self.prefetched
        return int(index)

    def __len__(self) -> int:
        return self.size

    def prefetch(self, indices: list[int]) -> None:
        self.prefetched = set(map(int, indices))

    def batch_by_size(self, indices: Any, max_sentences: int) -> list[Any]:
        return [indices[first : first + max_sentences] for first in range(0, len(indices), max_sentences)]


class Run:
    """The iterators of all processes of a run."""

    def __init__(
        self, size: int = 4, processes: int = 1, update_freq: int = 1, *, elastic: bool = False,
        sentences: int = SENTENCES, prefetch: bool = False, fixes: bool = False, seed: int = 1, **options: Any,
    ) -> None:  # fmt: skip
        self.fixes, self.iterators, self.shares = fixes, [], [update_freq] * processes
        for process in range(processes):
            data = Numbers(sentences, prefetch)
            batches = data.batch_by_size(numpy.arange(3, sentences), size)
            kind: Any = SharedUpdates if elastic else EpochBatchIterator
            iterator = kind(
                data, list, batches, seed, num_shards=processes, shard_id=process, reuse_dataloader=True, **options
            )
            iterator.batching = {"max_sentences": size}
            if elastic:
                iterator.update_freq = [update_freq]
                self.shares[process] = batches_of_process(max(update_freq, processes), processes, process)
            self.iterators.append(iterator)

    def train(self, count: int | None = None, *, shuffle: bool = True) -> list[list[int]]:
        """The sentences of each of ``count`` updates, or of all that an epoch has or that are left of it."""
        epochs = []
        for iterator, share in zip(self.iterators, self.shares, strict=True):
            epoch = iterator.next_epoch_itr(shuffle, self.fixes)
            epochs.append(GroupedIterator(epoch, share, skip_remainder_batch=iterator.skip_remainder_batch))
        updates = []
        while (count is None or len(updates) < count) and epochs[0].has_next():
            parts = [next(epoch) for epoch in epochs]
            updates.append(sorted(sentence for part in parts for batch in part for sentence in batch))
        assert count is not None or not any(epoch.has_next() for epoch in epochs)
        return updates

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.iterators[0].state_dict()
        return state

    def resumed(self, state: dict[str, Any]) -> Run:
        for iterator in self.iterators:
            iterator.load_state_dict(state)
        return self


KINDS = st.fixed_dictionaries(
    {
        "size": st.integers(1, 9),
        "processes": st.integers(1, 3),
        "update_freq": st.integers(1, 4),
        "elastic": st.booleans(),
        "seed": st.integers(1, 2),
        "grouped_shuffling": st.booleans(),
    }
)


@settings(max_examples=40, deadline=None)
@given(runs=st.lists(st.tuples(KINDS, st.integers(1, 5)), min_size=2, max_size=4))
def test_with_any_other_batches_every_sentence_is_taken_once(runs: list[tuple[dict[str, Any], int]]) -> None:
    """A run that is stopped, perhaps several times, and goes on with other options."""
    state, taken = None, []
    for number, (options, updates) in enumerate(runs, start=1):
        run = Run(**options)
        if state is not None:
            run.resumed(state)
        if run.iterators[0].epoch == 2:  # nothing was left
            break
        taken += run.train(updates if number < len(runs) else None)
        state = run.state()
        if state["epoch"] == 2:
            break
    sentences = list(chain.from_iterable(taken))
    assert len(sentences) == len(set(sentences))
    assert sorted(sentences) == list(range(3, SENTENCES))


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("fixes", [False, True])
def test_groups_of_processes_leave_out_no_sentence(prefetch: bool, fixes: bool) -> None:
    run = Run(2, processes=2, prefetch=prefetch, fixes=fixes, grouped_shuffling=True)
    sentences = list(chain.from_iterable(run.train()))
    assert sorted(sentences) == list(range(3, SENTENCES))


@settings(max_examples=40, deadline=None)
@given(
    options=KINDS, skips=st.booleans(), prefetch=st.booleans(), fixes=st.booleans(), stop=st.integers(1, 7),
    before=st.integers(1, 3), shuffle=st.booleans(),
)  # fmt: skip
def test_with_the_same_batches_it_is_the_run_that_was_never_stopped(
    options: dict[str, Any], skips: bool, prefetch: bool, fixes: bool, stop: int, before: int, shuffle: bool
) -> None:
    """Also after it had gone on with other ones, as ``before`` does."""
    options |= {"skip_remainder_batch": skips, "prefetch": prefetch, "fixes": fixes, "size": min(options["size"], 3)}
    earlier = Run(2)
    earlier.train(before)
    states = [None, earlier.state()]
    for state in states:
        whole, first, second = Run(**options), Run(**options), Run(**options)
        if state is not None:
            whole.resumed(state)
            first.resumed(state)
        expected = [whole.train(shuffle=shuffle), whole.train()]
        done = first.train(stop, shuffle=shuffle)
        second.resumed(first.state())
        left = [second.train(shuffle=shuffle)] if len(done) < len(expected[0]) else []
        assert [done + (left[0] if left else []), second.train()] == expected


def test_a_curriculum_ends() -> None:
    run = Run(2)
    ordered = run.train(shuffle=False)
    assert ordered == sorted(ordered)
    shuffled = run.train()
    assert shuffled != ordered
    assert sorted(shuffled) == ordered


def test_of_other_data_the_epoch_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    first = Run()
    first.train(3)
    second = Run(sentences=40).resumed(first.state())
    assert "epoch 1 starts from the beginning" in caplog.text
    assert sorted(chain.from_iterable(second.train())) == list(range(3, 40))


def test_a_place_beyond_the_end_is_refused_where_nothing_says_which_sentences_were_taken() -> None:
    """As in checkpoints of fairseq's, and where batches are in sets of their own."""
    first = Run(1)
    first.train(20)
    state = {key: value for key, value in first.state().items() if key in ("version", "epoch", "iterations_in_epoch")}
    assert Run(1).resumed(state).train() == Run(1).train()[20:]
    with pytest.raises(UserError, match=r"20 batches of epoch 1, which has 13 .*--reset-dataloader"):
        Run(4).resumed(state)
    grouped = GroupedEpochBatchIterator(Numbers(), list, [[[number] for number in range(9)]])
    with pytest.raises(UserError, match="20 batches of epoch 1, which has 9"):
        grouped.load_state_dict(state)


def test_an_epoch_without_a_whole_update_is_refused() -> None:
    with pytest.raises(UserError, match=r"--update-freq 16.*--skip-remainder-batch"):
        Run(4, update_freq=16, skip_remainder_batch=True).train()


class Epochs(torch.utils.data.Dataset[int]):
    """A data set whose sentences are all the number of its epoch."""

    epoch = 1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> int:
        return self.epoch

    def __len__(self) -> int:
        return 2


def test_processes_that_load_data_know_the_epoch() -> None:
    iterator = EpochBatchIterator(Epochs(), list, [[0], [1]], num_workers=1, reuse_dataloader=True)
    assert [list(iterator.next_epoch_itr()) for _ in range(3)] == [[[1], [1]], [[2], [2]], [[3], [3]]]
