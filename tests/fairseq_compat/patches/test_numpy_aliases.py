"""The two places of fairseq that use ``np.int`` and ``np.float`` run, and NumPy itself gets no old names back."""

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


def test_numpy_itself_is_unchanged() -> None:
    from fairseq.data import data_utils

    assert data_utils.np.int is int
    assert not hasattr(numpy, "int")
    assert not hasattr(numpy, "float")
