"""Patches of pretrained models: XLM's parameters, and what models remember of searches."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fairseq.models.transformer_from_pretrained_xlm import upgrade_state_dict_with_xlm_weights
from fairseq.modules import BeamableMM

from fairseq_compat.checkpoints import forget_initial_values


def test_a_trained_model_does_not_read_xlm() -> None:
    options = SimpleNamespace(pretrained_xlm_checkpoint="gone.pt")
    forget_initial_values(options)
    parameters = {"layers.0.fc1.bias": torch.zeros(3)}
    assert upgrade_state_dict_with_xlm_weights(parameters, options.pretrained_xlm_checkpoint) is parameters


def test_attention_of_convolutional_models_computes_the_same_for_any_beam() -> None:
    first, second = torch.randn(6, 1, 4), torch.randn(6, 4, 5)
    assert torch.equal(BeamableMM(3).eval()(first, second), first.bmm(second))
