"""The whole model: the paper's layers read a second time, published parameter counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from second_reading import read_features
from tiny_models import PAD, SOURCE, TARGET, build_tiny, task_of

from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer, DepthwiseLSTMTransformerConfig

# --- the equations -----------------------------------------------------------------------------------------------


def test_forward_is_the_paper_sentence_by_sentence() -> None:
    """Also shows that padding and the other sentences of a batch change nothing."""
    model = build_tiny().double()
    with torch.no_grad():
        batched = model(SOURCE, None, TARGET)[0]
        for b in range(3):
            source, target = SOURCE[b][SOURCE[b] != PAD], TARGET[b][TARGET[b] != PAD]
            alone = model(source[None], None, target[None])[0][0]
            read = F.linear(read_features(model, source, target, {}), model.decoder.output_projection.weight)
            torch.testing.assert_close(alone, read, rtol=1e-5, atol=1e-5)  # the package's sinusoids are float32
            torch.testing.assert_close(batched[b, : len(target)], alone)


# --- parameters ----------------------------------------------------------------------------------------------------


def count_on_meta(**options: Any) -> int:
    """Number of parameters with the vocabulary and tying of the papers' tables, without allocating any."""
    vocabulary = 35_627
    with torch.device("meta"):
        model = DepthwiseLSTMTransformer.build_model(
            SimpleNamespace(share_all_embeddings=True, **options), task_of(vocabulary, vocabulary)
        )
    # The published counts include the classifier's bias, which fairseq's tied projection does not have.
    return sum(parameter.numel() for parameter in model.parameters()) + vocabulary


@pytest.mark.parametrize(
    ("layers", "published"),
    [(3, "46.63"), (12, "122.23"), (18, "172.63"), (24, "223.02")],
    ids=lambda value: f"{value}",
)
def test_published_parameter_counts(layers: int, published: str) -> None:
    """Table 6; its 6-layer row shares one set of gates across both stacks, which is not the default."""
    assert f"{count_on_meta(encoder_layers=layers, decoder_layers=layers) / 1e6:.2f}" == published


def test_parameter_count_of_the_base_model() -> None:
    """6+6 layers as the text says it: one set of gates for each stack (the paper's table has one for both)."""
    d, hidden, vocabulary = 512, 2048, 35_627
    attention, norm = 4 * d * d, 2 * d
    net = 2 * d * hidden + 2 * hidden + hidden // 2 * d
    gates = 3 * (2 * d * d + norm)
    layers = 6 * (attention + net) + 6 * (2 * attention + net)
    norms = (6 - 1) * norm + 2 * (6 - 1) * norm + 2 * norm
    assert count_on_meta() == vocabulary * d + vocabulary + layers + 2 * gates + norms


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_configuration_from_an_older_version_is_completed() -> None:
    config = DepthwiseLSTMTransformerConfig.complete(SimpleNamespace(encoder_layers=2))
    assert (config.encoder_layers, config.depthwise_hidden_dim) == (2, 2048)
