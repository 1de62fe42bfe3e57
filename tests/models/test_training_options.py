"""What acts in training only: skipped layers, gate metrics."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import FAMILIES, SOURCE, TARGET, build_tiny
from torch import nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState

every_family = pytest.mark.parametrize("family", FAMILIES)

LAYERDROP = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}


# --- layerdrop -------------------------------------------------------------------------------------------------------


def layers_that_ran(model: FairseqEncoderDecoderModel, seed: int) -> list[int]:
    """Numbers of the layers, the encoder's from 0 and the decoder's from 100."""
    ran: list[int] = []
    hooks = [
        nn.ModuleList.__getitem__(stack, number).register_forward_hook(
            lambda *_, number=number + first: ran.append(number)
        )
        for stack, first in ((model.encoder.layers, 0), (model.decoder.layers, 100))
        for number in range(len(stack))
    ]
    torch.manual_seed(seed)
    model(SOURCE, None, TARGET)
    for hook in hooks:
        hook.remove()
    return ran


@every_family
def test_layers_are_skipped_in_training_as_the_seed_says(family: str) -> None:
    model = build_tiny(family, encoder_layers=4, decoder_layers=4, **LAYERDROP).train()
    runs = [layers_that_ran(model, seed) for seed in range(60)]
    assert runs[:5] == [layers_that_ran(model, seed) for seed in range(5)]
    assert all(run == sorted(run) for run in runs)
    for number in (0, 3, 100, 103):
        share = sum(number in run for run in runs) / len(runs)
        assert 0.3 < share < 0.7


# --- gate metrics ----------------------------------------------------------------------------------------------------


def logged(model: FairseqEncoderDecoderModel) -> dict[str, float]:
    with metrics.aggregate() as aggregate:
        model(SOURCE, None, TARGET)
    return aggregate.get_smoothed_values()


@pytest.mark.parametrize("merge", ["add", "two-cells"])
def test_gates_and_cells_are_logged_in_training(merge: str) -> None:
    options = {"decoder_merge": merge, "depthwise_sharing": "none"}
    model = build_tiny(log_gates=True, **options)
    assert logged(model) == {}
    assert logged(build_tiny(**options).train()) == {}
    expected: dict[str, float] = {}
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, side).layers, start=1):
            two = merge == "two-cells" and side == "decoder"
            for place, cell in ({"a": layer.middle_cell, "b": layer.cell} if two else {"": layer.cell}).items():

                def keep(cell: Any, inputs: Any, above: DepthwiseState, at: tuple[str, str]) -> None:
                    for gate, values in zip(("input", "forget", "output"), cell.gate_values(*inputs), strict=True):
                        expected[f"{at[0]}_{gate}_gate{at[1]}"] = values.mean().item()
                        expected[f"{at[0]}_{gate}_gate_deviation{at[1]}"] = values.std(correction=0).item()
                    expected[f"{at[0]}_cell_norm{at[1]}"] = above.cell.norm(dim=-1).mean().item()

                cell.register_forward_hook(functools.partial(keep, at=(side, f"_layer{number}{place}")))
    found = logged(model.train())
    for stack in {name.partition("_layer")[0] for name in expected}:
        of_layers = [value for name, value in expected.items() if name.startswith(f"{stack}_layer")]
        expected[stack] = sum(of_layers) / len(of_layers)
    assert found == pytest.approx(expected, abs=2e-3)
