"""A trained model with linear layers in it: every family and fairseq's own, whole and step by step, frozen, saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from probe_checkpoints import KINDS, checkpoint_of, data_in, model_and_options
from tiny_models import PAD, SOURCE, TARGET
from torch import Tensor, nn

from fairseq_compat import checkpoints
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.analysis.probe.record import write_linearized
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseState
from fairseq_depthwise.models.linearized.model import LinearizedTransformer, depths_of, layers_named

DEPTHWISE = "depthwise_lstm_transformer"

#: What is linearized, and what of its layers' states is mapped.
CASES = [(kind, "pair") for kind in KINDS] + [(DEPTHWISE, "output")]

every_case = pytest.mark.parametrize(("kind", "which"), CASES)


def linearized(kind: str, layers: str = "all", which: str = "pair", **options: Any) -> LinearizedTransformer:
    """With maps of random numbers near to the identity, in float64."""
    trained = model_and_options(kind, **options)[0]
    names = layers_named(layers, depths_of(trained), "--probe-layers", kind)
    model = LinearizedTransformer(trained, names, which).double()
    torch.manual_seed(3)
    with torch.no_grad():
        for layer in model.linearized.values():
            for parameter in layer.linear.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def vectors_of(state: Any) -> Tensor:
    return torch.cat(state, dim=-1) if isinstance(state, DepthwiseState) else state


# --- what is computed ------------------------------------------------------------------------------------------------


CONNECTIONS = {
    name: {"encoder_connection": name, "decoder_connection": name, "encoder_block_size": 0}
    for name in ("average", "attention", "hyper", "value-residual")
}


@pytest.mark.parametrize(
    ("kind", "which", "options"),
    [*((*case, {}) for case in CASES), *(("sdt_transformer", "pair", options) for options in CONNECTIONS.values())],
    ids=str,
)
@pytest.mark.parametrize("layers", ["encoder.2,decoder.1", "encoder.1", "decoder.2"])
def test_maps_stand_where_the_layers_stood(layers: str, kind: str, which: str, options: dict[str, Any]) -> None:
    """Of the trained model, made anew with hooks that put ``W x + b`` in place of what layers return.

    Values that go past a layer (value residuals) are those of the trained layer, also of the first.
    """
    model = linearized(kind, layers, which, **options)
    trained = model_and_options(kind, **options)[0].double()

    def put(layer: nn.Module, linear: nn.Linear, alone: bool) -> None:
        def hook(_: nn.Module, inputs: tuple[Any, ...], returned: Any) -> Any:
            below, state = inputs[0], returned if alone else returned[0]
            if which == "output":
                above: Any = DepthwiseState(below.output @ linear.weight.t() + linear.bias, below.cell)
            elif hasattr(below, "stream"):
                above = state._replace(stream=below.stream @ linear.weight.t() + linear.bias)
            else:
                above = vectors_of(below) @ linear.weight.t() + linear.bias
                if isinstance(below, DepthwiseState):
                    above = DepthwiseState(*above.chunk(2, dim=-1))
            return above if alone else (above, *returned[1:])

        layer.register_forward_hook(hook)

    for name in layers.split(","):
        side, number = name.split(".")
        put(getattr(trained, side).layers[int(number) - 1], model.linearized[name].linear, side == "encoder")
    with torch.no_grad():
        found = model(SOURCE, None, TARGET)[0]
        torch.testing.assert_close(found, trained(SOURCE, None, TARGET)[0])
        encoded, state = model.encoder(SOURCE, src_lengths=SOURCE.ne(PAD).sum(1)), {}
        for t in range(2):  # as many as all sentences have
            step = model.decoder(TARGET[:, : t + 1], encoded, incremental_state=state)[0]
            torch.testing.assert_close(step[:, 0], found[:, t])


# --- what is trained -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_part_stays_in_evaluation_mode(kind: str) -> None:
    noisy: dict[str, Any] = {"dropout": 0.5, "attention_dropout": 0.5, "activation_dropout": 0.5}
    if kind == "mute_transformer":
        noisy |= {"unit_noise_rate": 1.0, "unit_inputs": "identity,swap,disorder"}
    model = linearized(kind, "encoder.1", **noisy)
    expected = model(SOURCE, None, TARGET)[0]
    assert model.train() is model
    assert model.training
    assert torch.equal(model(SOURCE, None, TARGET)[0], expected)
    model.eval()
    assert not model.training


# --- checkpoints -----------------------------------------------------------------------------------------------------


@every_case
def test_a_checkpoint_needs_neither_the_trained_file_nor_an_option(kind: str, which: str, tmp_path: Path) -> None:
    path = checkpoint_of(tmp_path, kind)
    expected = linearized(kind, "decoder.2", which).float()
    linear = expected.linearized["decoder.2"].linear
    fit = LinearFit(linear.weight.double(), linear.bias.double(), 0.0, 0.0, 1)
    written = tmp_path / "linearized.pt"
    write_linearized(Checkpoint.open(path), str(written), "decoder.2", which if kind == DEPTHWISE else "", fit)
    Path(path).unlink()
    data = data_in(tmp_path / "data-bin")
    (model,), saved, task = checkpoint_utils.load_model_ensemble_and_task([str(written)], arg_overrides={"data": data})
    assert isinstance(model, LinearizedTransformer)
    assert not model.training
    assert saved.model._name == "linearized_transformer"
    assert len(task.source_dictionary) == 12
    with torch.no_grad():
        assert torch.equal(model(SOURCE, None, TARGET)[0], expected(SOURCE, None, TARGET)[0])
    # The checkpoint has nothing that the model would not save itself.
    assert set(checkpoints.load_checkpoint(written)["model"]) == set(model.state_dict())
