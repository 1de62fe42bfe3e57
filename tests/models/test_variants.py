"""Every variant of every family: the equations, decoding, saving, gradients, padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import second_reading
import second_reading_mute
import second_reading_sdt
import torch
from fairseq.models import FairseqEncoderDecoderModel
from second_reading import read_log_probabilities
from tiny_models import MUTE_VARIANTS, PAD, SDT_VARIANTS, SOURCE, TARGET, VARIANTS, build_tiny
from torch import Tensor

ALL = VARIANTS | SDT_VARIANTS | MUTE_VARIANTS
every_variant = pytest.mark.parametrize("options", ALL.values(), ids=ALL)

READINGS = {
    "depthwise_lstm_transformer": second_reading.read_features,
    "sdt_transformer": second_reading_sdt.read_features,
    "mute_transformer": second_reading_mute.read_features,
}


def sentences() -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, source and target of each sentence, without padding."""
    for b in range(3):
        yield b, SOURCE[b][SOURCE[b] != PAD], TARGET[b][TARGET[b] != PAD]


def features(model: FairseqEncoderDecoderModel, source: Tensor, target: Tensor) -> Tensor:
    """B x T x C, what the output projection gets."""
    return model.decoder(target, model.encoder(source), features_only=True)[0]


def log_probabilities(model: FairseqEncoderDecoderModel, source: Tensor, target: Tensor) -> Tensor:
    """B x T x V."""
    return model.get_normalized_probs(model(source, None, target), log_probs=True)


@every_variant
def test_forward_is_the_paper(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double()
    read_features = READINGS[options.get("name", "depthwise_lstm_transformer")]
    with torch.no_grad():
        for _, source, target in sentences():
            read = read_features(model, source, target, options)
            # The package's sinusoids are float32.
            found = features(model, source[None], target[None])[0]
            torch.testing.assert_close(found, read, rtol=1e-5, atol=1e-5)
            found = log_probabilities(model, source[None], target[None])[0].double()
            torch.testing.assert_close(found, read_log_probabilities(model, read), rtol=1e-5, atol=1e-5)


@every_variant
def test_padding_and_neighbors_change_nothing(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double()
    with torch.no_grad():
        batched = features(model, SOURCE, TARGET)
        for b, source, target in sentences():
            torch.testing.assert_close(batched[b, : len(target)], features(model, source[None], target[None])[0])
