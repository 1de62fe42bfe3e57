"""What growing leaves as it is: type, mode, random numbers, whoever holds the model; and what does not fit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy
import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from growth_by_hand import assert_same_model, depthwise_by_hand, grow, scores, trained
from tiny_models import SOURCE, VARIANTS, task_of
from torch import nn

from fairseq_depthwise.growth.grown_model import WithoutRandomValues, fill

# --- what does not change --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("family", ["sdt_transformer", "depthwise_lstm_transformer"])
def test_the_type_stays(dtype: torch.dtype, family: str) -> None:
    options = {"encoder_layers": 2, "encoder_block_size": 1}
    model = trained(family, **options).to(dtype)
    if family == "sdt_transformer":
        expected = copy.deepcopy(model)
        for layer in (0, 1):
            expected.encoder.layers.append(copy.deepcopy(model.encoder.layers[layer]))
            expected.encoder.connection.norms.append(copy.deepcopy(model.encoder.connection.norms[layer]))
            row = torch.full((layer + 4,), 1 / (layer + 4), dtype=dtype)
            expected.encoder.connection.rows.append(nn.Parameter(row))
    else:
        expected = depthwise_by_hand(model, {"encoder": [0, 1, 0, 1]}).to(dtype)
    grow(model, family, {"encoder": [0, 1, 0, 1]}, **options)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert torch.get_default_dtype() == torch.float32
    assert_same_model(model, expected)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_stays(training: bool) -> None:
    model = trained("depthwise_lstm_transformer").train(training)
    grow(model, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 2]})
    assert {module.training for module in model.modules()} == {training}


@pytest.mark.parametrize("name", ["default", "relative keys and values"])
def test_no_random_number_is_drawn(name: str) -> None:
    options = {**VARIANTS[name], "encoder_learned_pos": True}
    model = trained("depthwise_lstm_transformer", **options)
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    grow(model, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 2]}, **options)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy.random.get_state()[1].tolist() == states[2]


def test_tables_that_no_checkpoint_keeps_stay() -> None:
    """Positions are computed where the model is built, and go on where a longer sentence has extended them."""
    model = trained("depthwise_lstm_transformer")
    table = model.encoder.embedding.positions.table
    model.encoder.embedding.positions.table = torch.cat((table, table)) + 0.25
    expected = copy.deepcopy(model.encoder.embedding.positions.table)
    grow(model, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 2]})
    assert torch.equal(model.encoder.embedding.positions.table, expected)
    assert "encoder.embedding.positions.table" not in model.state_dict()


def test_whoever_holds_the_model_decodes_with_the_grown_one() -> None:
    options = {"encoder_layers": 2, "encoder_block_size": 1}
    model = trained("sdt_transformer", **options)
    target = task_of().target_dictionary
    sample = {"net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(1).sum(dim=1)}}

    def hypotheses(generator: SequenceGenerator) -> list[tuple[list[int], float]]:
        return [(best["tokens"].tolist(), float(best["score"])) for best, *_ in generator.generate([], sample)]

    generator = SequenceGenerator([model], target, beam_size=3, max_len_b=8)
    shallow = hypotheses(generator)
    expected = copy.deepcopy(model)
    grow(model, "sdt_transformer", {"encoder": [0, 1, 1], "decoder": [0, 1, 2, 1, 2]}, **options)
    deep = hypotheses(generator)
    assert deep != shallow
    grow(expected, "sdt_transformer", {"encoder": [0, 1, 1], "decoder": [0, 1, 2, 1, 2]}, **options)
    assert deep == hypotheses(SequenceGenerator([expected], target, beam_size=3, max_len_b=8))


# --- building without random values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        *(getattr(nn.init, f"{name}_") for name in ("uniform", "normal", "xavier_uniform", "xavier_normal")),
        *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_, torch.Tensor.uniform_, torch.Tensor.normal_),
    ],
)
def test_nothing_is_drawn_inside(draw: Callable[..., torch.Tensor]) -> None:
    tensor = torch.full((3, 3), 7.0)
    state = torch.get_rng_state()
    with WithoutRandomValues():
        assert draw(tensor) is tensor
        if vars(nn.init).get(draw.__name__) is draw:
            draw(tensor=tensor)
        nn.init.constant_(tensor[0], 2.0)
        nn.init.zeros_(tensor[1])
    assert torch.equal(tensor, torch.tensor([[2.0] * 3, [0.0] * 3, [7.0] * 3]))
    assert torch.equal(torch.get_rng_state(), state)
    draw(tensor)
    assert not torch.equal(torch.get_rng_state(), state)


# --- bad input -------------------------------------------------------------------------------------------------------


def test_values_that_do_not_fit_are_refused() -> None:
    model = nn.Linear(2, 3)
    for values, named in (({"weight": torch.zeros(3, 3)}, "weight"), ({"scale": torch.zeros(3)}, "scale")):
        with pytest.raises(ValueError, match=f"{named} does not fit"):
            fill(model, values)
    fill(model, {"bias": torch.ones(3, dtype=torch.float64)})
    assert model.bias.tolist() == [1.0, 1.0, 1.0]
    assert model.bias.dtype == torch.float32


@pytest.mark.parametrize("option", [{"encoder_embed_dim": 32, "decoder_embed_dim": 32}, {"depthwise_hidden_dim": 32}])
def test_a_deep_model_of_another_width_is_refused(option: dict[str, int]) -> None:
    model = trained("depthwise_lstm_transformer")
    before = scores(model)
    with pytest.raises(ValueError, match="does not fit"):
        grow(model, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 2]}, **option)
    assert torch.equal(scores(model), before)
