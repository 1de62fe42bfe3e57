"""Patches of pretrained models: XLM's parameters, and what models remember of searches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer_from_pretrained_xlm import upgrade_state_dict_with_xlm_weights
from fairseq.modules import BeamableMM

from fairseq_compat import UserError
from fairseq_compat.checkpoints import forget_initial_values

PREFIX = "encoder.sentence_encoder."


def written(path: Path, **parameters: torch.Tensor) -> str:
    model = {f"{PREFIX}{name.replace('__', '.')}": value for name, value in parameters.items()}
    torch.save({"model": model, "args": SimpleNamespace().__dict__}, path)
    return str(path)


def test_parameters_of_xlm_take_the_place_of_those_of_the_same_name(tmp_path: Path) -> None:
    path = written(tmp_path / "xlm.pt", layers__0__fc1__bias=torch.ones(3), lm_head__bias=torch.ones(9))
    own = {"layers.0.fc1.bias": torch.zeros(3), "layers.0.fc2.bias": torch.zeros(2)}
    values = upgrade_state_dict_with_xlm_weights(dict(own), path)
    assert values["layers.0.fc1.bias"].tolist() == [1, 1, 1]
    assert values["layers.0.fc2.bias"].tolist() == [0, 0]
    options = SimpleNamespace(pretrained_xlm_checkpoint=path)
    forget_initial_values(options)
    assert upgrade_state_dict_with_xlm_weights(own, options.pretrained_xlm_checkpoint) is own


@pytest.mark.parametrize("own", [{}, {"embed_positions.weight": torch.zeros(5, 2)}])
def test_other_parameters_than_those_of_xlm_are_named(own: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = written(tmp_path / "xlm.pt", embed_positions__weight=torch.ones(4, 2))
    with pytest.raises(UserError, match=f"^--pretrained-xlm-checkpoint {path} .*embed_positions"):
        upgrade_state_dict_with_xlm_weights(own, path)


def test_attention_of_convolutional_models_computes_the_same_for_any_beam() -> None:
    first, second = torch.randn(6, 1, 4), torch.randn(6, 4, 5)
    assert torch.equal(BeamableMM(3).eval()(first, second), first.bmm(second))
