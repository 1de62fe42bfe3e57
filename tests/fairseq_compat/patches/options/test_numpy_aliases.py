"""The places of fairseq that use old names of NumPy run, and NumPy itself gets no old names back."""

from __future__ import annotations

import numpy
import torch


def test_audio_masks_without_overlap() -> None:
    from fairseq.data import data_utils

    numpy.random.seed(1)
    mask = data_utils.compute_mask_indices(
        (2, 60), None, mask_prob=0.5, mask_length=5, no_overlap=True, min_space=1, mask_type="static"
    )
    assert mask.shape == (2, 60)
    assert mask[0].sum() == mask[1].sum() > 0


def test_conditional_random_field_gives_a_log_likelihood() -> None:
    from fairseq.modules.dynamic_crf_layer import DynamicCRF

    torch.manual_seed(1)
    layer = DynamicCRF(num_embedding=6, low_rank=3, beam_size=4)
    likelihood = layer(torch.randn(2, 5, 6), torch.randint(6, (2, 5)), torch.ones(2, 5, dtype=torch.bool))
    assert likelihood.shape == (2,)
    assert (likelihood <= 0).all()


def test_lengths_in_buckets() -> None:
    from fairseq.data import Dictionary, ListDataset, data_utils
    from fairseq.data.language_pair_dataset import LanguagePairDataset

    assert data_utils.get_buckets(numpy.array([1, 2, 3, 4, 9]), 2).tolist() == [3, 9]
    dictionary = Dictionary()
    sentences = ListDataset([torch.full((size,), 4) for size in (1, 2, 3, 4, 9)], [1, 2, 3, 4, 9])
    pairs = LanguagePairDataset(
        sentences, sentences.sizes, dictionary, sentences, sentences.sizes, dictionary, num_buckets=2
    )
    assert [len(pairs[place]["source"]) for place in range(5)] == [3, 3, 3, 9, 9]
    assert [len(batch) for batch in pairs.batch_by_size(pairs.ordered_indices(), max_tokens=9)] == [3, 1, 1]


def test_blocks_of_tokens() -> None:
    from fairseq.data import ListDataset, TokenBlockDataset

    sentences = ListDataset([torch.arange(size) for size in (3, 2)], [3, 2])
    blocks = TokenBlockDataset(sentences, sentences.sizes, block_size=None, pad=1, eos=2, break_mode="eos")
    assert [len(blocks[place]) for place in range(2)] == [3, 2]


def test_numpy_itself_is_unchanged() -> None:
    from fairseq.data import data_utils

    assert data_utils.np.int is int
    assert not hasattr(numpy, "int")
    assert not hasattr(numpy, "float")
