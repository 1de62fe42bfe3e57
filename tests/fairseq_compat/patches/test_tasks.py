"""Patches of tasks: what datasets draw at random, and which sentences they have."""

from __future__ import annotations

from argparse import Namespace

import numpy
import pytest
import torch
from fairseq.data import DenoisingDataset, FairseqDataset, ListDataset, ResamplingDataset
from fairseq.data.iterators import EpochBatchIterator
from tiny_models import dictionary_of


class Epochs(FairseqDataset):
    """Each of its items is the epoch, of which every part of a training has to know."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> int:
        return self.epoch

    def __len__(self) -> int:
        return 6

    def collater(self, samples: list[int]) -> tuple[list[int], int]:
        return samples, self.epoch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffered", [0, 2])
def test_all_processes_know_the_epoch(workers: int, buffered: int) -> None:
    dataset = Epochs()
    batches = [[0, 1], [2, 3], [4, 5]]
    iterator = EpochBatchIterator(
        dataset,
        dataset.collater,
        batches,
        num_workers=workers,
        buffer_size=buffered,
        reuse_dataloader=True,
    )
    for epoch in (1, 2, 3):
        assert list(iterator.next_epoch_itr()) == [([epoch, epoch], epoch)] * 3


def test_all_sentences_of_a_language_are_taken_once() -> None:
    sentences = ListDataset([torch.tensor([number]) for number in range(9)], numpy.ones(9, dtype=int))
    orders = []
    for epoch in (1, 2):
        resampled = ResamplingDataset(sentences, replace=False, size_ratio=1.0, epoch=epoch)
        orders.append([int(resampled[place]) for place in range(len(resampled))])
        assert sorted(orders[-1]) == list(range(9))
    assert orders[0] != orders[1]


def test_noise_depends_on_epoch_and_sentence_alone() -> None:
    dictionary = dictionary_of(12)
    args = Namespace(
        mask=0.3, mask_random=0.3, insert=0.2, rotate=0.0, permute_sentences=0.0, bpe=None, replace_length=1,
        mask_length="span-poisson", poisson_lambda=2.0,
    )  # fmt: skip

    def sources(epoch: int) -> list[list[int]]:
        sentences = [torch.tensor([0, 4, 5, 6, 7, 8, 9, 10, 11, 2]) for _ in range(3)]
        dataset = DenoisingDataset(
            ListDataset(sentences, [10] * 3), numpy.full(3, 10), dictionary, dictionary.unk(), None, False, 1, args
        )
        dataset.set_epoch(epoch)
        return [dataset[number]["source"].tolist() for number in range(3)]

    first = sources(1)
    state = torch.get_rng_state()
    assert sources(2) != first
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert sources(1) == first
    assert first[0] != first[1]
