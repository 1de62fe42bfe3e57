"""What the stacks of every family do: alignment, padding, tied tables, dropout."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny

from fairseq_depthwise.modules.dropout import Dropout

every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_a_copied_layer_has_a_cache_of_its_own(family: str) -> None:
    """Growth copies layers; caches keyed by something that is copied along would collide."""
    model = build_tiny(family).double()
    model.decoder.layers.append(copy.deepcopy(model.decoder.layers[-1]))
    with torch.no_grad():
        encoded = model.encoder(SOURCE)
        whole = model.decoder(TARGET, encoded)[0]
        state: dict[str, Any] = {}
        for t in range(TARGET.size(1)):
            step = model.decoder(TARGET[:, : t + 1], encoded, incremental_state=state)[0]
            real = TARGET[:, t] != PAD  # the beam search feeds no padding
            torch.testing.assert_close(step[real, 0], whole[real, t])


@every_family
def test_embeddings_are_tied_as_asked(family: str) -> None:
    def tables(**options: Any) -> int:
        model = build_tiny(family, **options)
        weights = (model.encoder.embedding.tokens, model.decoder.embedding.tokens, model.decoder.output_projection)
        return len({module.weight.data_ptr() for module in weights})

    assert tables() == 3
    assert tables(share_decoder_input_output_embed=True) == 2
    assert tables(share_all_embeddings=True) == 1


@every_family
def test_every_dropout_has_its_option(family: str) -> None:
    model = build_tiny(family, dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    expected = {"attention.dropout": 0.2, "activation_dropout": 0.3, "dropout": 0.1}
    found = {name: part.probability for name, part in model.named_modules() if isinstance(part, Dropout)}
    assert len(found) > 8
    for name, probability in found.items():
        assert probability == next(value for ending, value in expected.items() if name.endswith(ending)), name
