"""The stock encoder in evaluation mode: without the patch it stops, with it it computes what training computes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch


@pytest.fixture
def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B=2, T=4), the second sentence padded on the left, and lengths."""
    return torch.tensor([[4, 5, 6, 2], [1, 1, 7, 2]]), torch.tensor([4, 2])


def test_evaluation_computes_what_training_computes(
    stock_model: Any, padded_batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    stock_model.load_state_dict(stock_model.state_dict())  # fairseq takes the fast path after loading only
    with torch.no_grad():
        evaluated = stock_model.encoder(*padded_batch)["encoder_out"][0]
        trained = stock_model.train().encoder(*padded_batch)["encoder_out"][0]
    real = padded_batch[0].ne(1).T
    torch.testing.assert_close(evaluated[real], trained[real])


@pytest.mark.parametrize("version", ["2.6.0a0+nv25.01", "2.13.0.dev20260801"])
def test_versions_of_vendors_and_nightly_builds_are_not_read(
    monkeypatch: pytest.MonkeyPatch, padded_batch: tuple[torch.Tensor, torch.Tensor], version: str
) -> None:
    """fairseq would call ``int("0a0")`` while it builds and while it runs a layer."""
    monkeypatch.setattr(torch, "__version__", version)
    layer = importlib.import_module("fairseq.modules.transformer_layer").TransformerEncoderLayerBase
    config = importlib.import_module("fairseq.models.transformer.transformer_config").TransformerConfig()
    config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 8, 16, 2
    assert not layer(config).BT_version
