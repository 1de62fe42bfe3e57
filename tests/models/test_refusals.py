"""Options that are impossible, or contradict each other or the data: the error names the option and its value."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of, other_architecture
from tiny_models import FAMILIES, TINY, build_tiny, task_of

from fairseq_compat import UserError
from fairseq_compat.provenance import of_model
from fairseq_depthwise.models.depthwise_lstm.cell import CELLS, DepthwiseState, GatedDepthwiseCell, GateValues
from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer, DepthwiseLSTMTransformerConfig
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

DEPTHWISE, SDT, MUTE = FAMILIES

#: The first option of each is the one that is named with its value: numbers out of range, words that are no choice, and
#: options that contradict each other or that fairseq's own models have.
CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {"dropout": value}) for family in FAMILIES for value in (1.0, -0.1, math.nan)),
    *((family, {"encoder_attention_heads": 3}) for family in FAMILIES),
    (DEPTHWISE, {"encoder_layers": 0}),
    (DEPTHWISE, {"decoder_embed_dim": 32}),
    (DEPTHWISE, {"relative_position_terms": "value"}),
    (DEPTHWISE, {"adaptive_softmax_cutoff": "5,8"}),
    (SDT, {"quant_noise_pq": 0.1}),
    (DEPTHWISE, {"depthwise_hidden_dim": 25}),
    (DEPTHWISE, {"depthwise_forget_bias": -math.inf}),
    (DEPTHWISE, {"decoder_embed_path": "x", "share_all_embeddings": True}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "depthwise_cell": "rnn"}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "depthwise_sharing": "none"}),
    (DEPTHWISE, {"depthwise_gate_scope": "model", "decoder_merge": "concat"}),
    (DEPTHWISE, {"depthwise_attention_skip": True, "depthwise_cell": "rnn"}),
    (SDT, {"encoder_layers": 6, "encoder_block_size": 4}),
    (SDT, {"encoder_connection": "average"}),
    (SDT, {"decoder_connection": "blocks"}),
    (SDT, {"hyper_streams": 0, "encoder_connection": "hyper", "encoder_block_size": 0}),
    (MUTE, {"encoder_units": 9}),
    (MUTE, {"unit_inputs": "identity,swop,mask"}),
    (MUTE, {"unit_inputs": "identity,swap"}),
    (MUTE, {"unit_noise_rate": 1.5}),
    (MUTE, {"unit_mask_rate": 0.1, "unit_inputs": "swap"}),
    (MUTE, {"unit_sharing": "ffn", "encoder_units": 1}),
    (MUTE, {"unit_sequential": True, "encoder_units": 1}),
    (MUTE, {"permutation_penalty": 0.5}),
    (MUTE, {"permutation_penalty": -1.0, "unit_sequential": True}),
]


@pytest.mark.parametrize(("family", "options"), CASES, ids=str)
def test_an_impossible_value_is_named(family: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        build_tiny(family, **options)
    name, value = next(iter(options.items()))
    assert f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}" in str(error.value)


class HighwayCell(GatedDepthwiseCell):
    """A cell of other gates than the paper's."""

    gate_names = ("transform_gate",)

    def combine(self, gates: GateValues, hidden: torch.Tensor, state: DepthwiseState) -> DepthwiseState:
        (transform_gate,) = gates
        return DepthwiseState(output=torch.lerp(state.output, hidden, transform_gate), cell=state.cell)


def test_a_cell_without_forget_gate_has_no_bias_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CELLS, "highway", HighwayCell)
    DepthwiseLSTMTransformerConfig(depthwise_cell="highway", depthwise_gate_gain=0.5).check()
    with pytest.raises(UserError, match=r"--depthwise-forget-bias 2\.0 .*highway"):
        DepthwiseLSTMTransformerConfig(depthwise_cell="highway", depthwise_forget_bias=2.0).check()


def test_one_table_needs_one_dictionary() -> None:
    with pytest.raises(UserError, match=r"12 and 15 entries; .*--joined-dictionary"):
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**TINY, share_all_embeddings=True), task_of(12, 15))


def test_what_an_earlier_version_recorded_is_built() -> None:
    build_tiny(depthwise_kernel="compile", cuda_graphs=True, adaptive_softmax_cutoff=None, quant_noise_pq=0.0)
    for value, kind in ((True, "sinkhorn"), ("True", "sinkhorn"), (False, "none"), ("False", "none")):
        assert build_tiny(SDT, hyper_manifold=value).config.hyper_manifold == kind
        recorded = [of_model(Namespace(arch=SDT, hyper_manifold=given)) for given in (value, kind)]
        assert recorded[0] == recorded[1] == {"hyper_manifold": kind == "sinkhorn"}


def test_sub_layers_that_are_connected_are_not_linearized() -> None:
    options = {"encoder_connection": "average", "encoder_block_size": 0, "connection_unit": "sub-layer"}
    with pytest.raises(UserError, match="--connection-unit layer"):
        LinearizedTransformer(build_tiny(SDT, **options), ["encoder.1"])


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (DEPTHWISE, {"depthwise_hidden_dim": 25, "depthwise_hidden_activation": "gelu"}),  # nothing to halve
        (DEPTHWISE, {"depthwise_hidden_dim": 25, "depthwise_hidden_layers": 1}),  # not used
        (SDT, {"encoder_layers": 1, "decoder_layers": 1, "encoder_block_size": 1}),
        (MUTE, {"encoder_units": 8, "unit_inputs": "swap"}),
        (MUTE, {"unit_inputs": " swap, mask ,disorder", "unit_noise_rate": 1, "unit_mask_rate": 1.0}),
        (MUTE, {"unit_sequential": True, "permutation_penalty": 0.0}),
    ],
    ids=str,
)
def test_unusual_values_are_built(family: str, options: dict[str, Any]) -> None:
    model = build_tiny(family, **options).train()
    assert model(torch.tensor([[5, 2]]), None, torch.tensor([[2, 5]]))[0].isfinite().all()


def build_linearized(**options: Any) -> LinearizedTransformer:
    """As ``fairseq-train`` does."""
    values = {
        "_name": "linearized_transformer",
        "probe_path": None,
        "probe_layers": "all",
        "probe_state": "pair",
        "probe_model": None,
        **options,
    }
    return LinearizedTransformer.build_model(Namespace(**values), task_of())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs --probe-path"),
        ({"probe_path": "{none}"}, "{none}"),
        ({"probe_path": "{depthwise}", "probe_layers": ""}, "--probe-layers"),
        ({"probe_path": "{depthwise}", "probe_layers": "encoder.1,encoder.4"}, "encoder.4: give some of the layers"),
        ({"probe_path": "{depthwise}", "probe_state": "cell"}, "--probe-state cell"),
        ({"probe_path": "{stock}", "probe_state": "output"}, "--probe-state output: the layers of {stock}"),
        ({"probe_path": "{lstm}"}, "LSTMModel"),
    ],
)
def test_bad_options_of_a_linearized_transformer(options: dict[str, str], said: str, tmp_path: Path) -> None:
    known = {
        "none": str(tmp_path / "none.pt"),
        "depthwise": checkpoint_of(tmp_path, DEPTHWISE),
        "stock": checkpoint_of(tmp_path, "transformer", "stock.pt"),
        "lstm": other_architecture(tmp_path, "lstm"),
    }
    with pytest.raises(UserError) as error:
        build_linearized(**{name: value.format(**known) for name, value in options.items()})
    assert said.format(**known) in str(error.value)
