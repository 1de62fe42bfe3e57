"""What options do in every family: dropouts; and in training only: skipped layers, gate metrics."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from second_reading_sdt import read_encoder
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny
from torch import nn

from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.modules.dropout import Dropout

every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_every_dropout_has_its_option(family: str) -> None:
    model = build_tiny(family, dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    expected = {"attention.dropout": 0.2, "activation_dropout": 0.3, "dropout": 0.1}
    found = {name: part.probability for name, part in model.named_modules() if isinstance(part, Dropout)}
    assert len(found) > 8
    for name, probability in found.items():
        assert probability == next(value for ending, value in expected.items() if name.endswith(ending)), name


# --- layerdrop -------------------------------------------------------------------------------------------------------


def layers_that_run(model: FairseqEncoderDecoderModel) -> list[int]:
    """Filled by every forward: numbers of the layers, the encoder's from 0 and the decoder's from 100."""
    ran: list[int] = []
    for stack, first in ((model.encoder.layers, 0), (model.decoder.layers, 100)):
        for number in range(len(stack)):
            layer = nn.ModuleList.__getitem__(stack, number)
            layer.register_forward_hook(lambda *_, number=first + number: ran.append(number))
    return ran


@every_family
def test_layers_are_skipped_in_training_as_the_seed_says(family: str) -> None:
    options = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
    model = build_tiny(family, encoder_layers=4, decoder_layers=4, **options).train()
    ran, runs = layers_that_run(model), []
    for seed in (*range(60), *range(5)):
        ran.clear()
        torch.manual_seed(seed)
        model(SOURCE, None, TARGET)
        runs.append(list(ran))
    assert runs[60:] == runs[:5]
    assert all(run == sorted(run) for run in runs)
    for number in (0, 3, 100, 103):
        share = sum(number in run for run in runs) / len(runs)
        assert 0.3 < share < 0.7


@pytest.mark.parametrize("block_size", [0, 1, 2, 4])  # no connections, dense ones, two blocks, one
@pytest.mark.parametrize("layerdrop", [0.5, 1 - 1e-9])
def test_skipped_layers_leave_the_blocks_as_they_are(block_size: int, layerdrop: float) -> None:
    """Also where no layer is left but the connection."""
    options = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "encoder_layerdrop": layerdrop}
    model = build_tiny("sdt_transformer", encoder_block_size=block_size, **options).double().train()
    ran, seen = layers_that_run(model), set()
    with torch.no_grad():
        for seed in range(12 if layerdrop == 0.5 else 1):
            ran.clear()
            torch.manual_seed(seed)
            output = model.encoder(SOURCE)["encoder_out"][0]
            skipped = {0, 1, 2, 3} - set(ran)
            seen.add(frozenset(skipped))
            for b, source in enumerate(SOURCE):
                real = source != PAD
                read = read_encoder(model, source[real], {"encoder_block_size": block_size}, skipped).output
                torch.testing.assert_close(output[real, b], read, rtol=1e-5, atol=1e-5)  # sinusoids are float32
    assert len(seen) > 6 or seen == {frozenset(range(4))}


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
