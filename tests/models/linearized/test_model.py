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


@every_case
def test_maps_stand_where_the_layers_stood(kind: str, which: str) -> None:
    """Of the trained model, made anew with hooks that put ``W x + b`` in place of what two layers return."""
    model = linearized(kind, "encoder.2,decoder.1", which)
    trained = model_and_options(kind)[0].double()

    def put(layer: nn.Module, linear: nn.Linear) -> None:
        def hook(_: nn.Module, inputs: tuple[Any, ...], returned: Any) -> Any:
            below = inputs[0]
            if which == "output":
                above: Any = DepthwiseState(below.output @ linear.weight.t() + linear.bias, below.cell)
            else:
                above = vectors_of(below) @ linear.weight.t() + linear.bias
                if isinstance(below, DepthwiseState):
                    above = DepthwiseState(*above.chunk(2, dim=-1))
            return (above, *returned[1:]) if type(returned) is tuple else above

        layer.register_forward_hook(hook)

    put(trained.encoder.layers[1], model.linearized["encoder.2"].linear)
    put(trained.decoder.layers[0], model.linearized["decoder.1"].linear)
    torch.testing.assert_close(model(SOURCE, None, TARGET)[0], trained(SOURCE, None, TARGET)[0])


@pytest.mark.parametrize("connection", ["average", "attention", "hyper", "value-residual"])
@pytest.mark.parametrize("name", ["encoder.1", "encoder.2", "decoder.1", "decoder.2"])
def test_maps_under_each_connection(name: str, connection: str) -> None:
    """Values that go past a layer (value residuals) are those of the trained layer, also of the first."""
    options = {"encoder_connection": connection, "decoder_connection": connection, "encoder_block_size": 0}
    model = linearized("sdt_transformer", name, **options)
    trained = model_and_options("sdt_transformer", **options)[0].double()
    side, number = name.split(".")
    linear = model.linearized[name].linear

    def put(_: nn.Module, inputs: tuple[Any, ...], returned: Any) -> Any:
        state = returned[0] if side == "decoder" else returned
        if connection == "value-residual":
            above: Any = state._replace(stream=inputs[0].stream @ linear.weight.t() + linear.bias)
        else:
            above = inputs[0] @ linear.weight.t() + linear.bias
        return (above, returned[1]) if side == "decoder" else above

    getattr(trained, side).layers[int(number) - 1].register_forward_hook(put)
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
    write_linearized(path, str(written), "decoder.2", which if kind == DEPTHWISE else "", fit)
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
