"""What the layers share, by the storage of every parameter, and parameter counts by a formula of their own."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
from tiny_models import TINY, VARIANTS, build_tiny

VOCABULARY = 12  # of the tiny task, on both sides

every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


# --- sharing ---------------------------------------------------------------------------------------------------------


def shared_name(name: str, options: dict[str, Any]) -> str:
    """The parameter's name without what does not distinguish it, as the options say it.

    ``encoder.layers.2.cell.gates.projection.weight`` becomes ``encoder.cell.gates.projection.weight`` where the layers
    of a stack share gates, and ``gates.projection.weight`` where the whole model does.
    """
    sharing = options.get("depthwise_sharing", "gates")
    if ".gates." in name and options.get("depthwise_gate_scope") == "model":
        return name[name.index("gates.") :]
    if (".gates." in name and sharing != "none") or (".hidden_net." in name and sharing == "all"):
        return re.sub(r"layers\.\d+\.", "", name)
    return name


@every_variant
def test_parameters_are_one_exactly_where_they_should_be(options: dict[str, Any]) -> None:
    model = build_tiny(**options)
    expected, found = defaultdict(set), defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        expected[shared_name(name, options)].add(name)
        found[parameter.data_ptr()].add(name)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected.values()))


@every_variant
def test_moving_to_another_precision_keeps_what_is_shared(options: dict[str, Any]) -> None:
    model = build_tiny(**options)
    before = len(list(model.parameters()))
    model.half().double()
    assert len({parameter.data_ptr() for parameter in model.parameters()}) == before


# --- counts ----------------------------------------------------------------------------------------------------------


def formula(options: dict[str, Any]) -> int:
    """Number of parameters of a tiny model: widths, layers and sharing, nothing of the code."""
    chosen = TINY | options
    d, wide, heads = chosen["encoder_embed_dim"], chosen["depthwise_hidden_dim"], chosen["encoder_attention_heads"]
    encoder_layers, decoder_layers = chosen["encoder_layers"], chosen["decoder_layers"]

    def gates(inputs: int) -> int:
        return 0 if chosen.get("depthwise_cell") == "rnn" else 3 * (inputs * d + 2 * d)

    def net(inputs: int) -> int:
        if chosen.get("depthwise_hidden_layers") == 1:
            return inputs * d + 2 * d
        after = wide if "depthwise_hidden_activation" in chosen else wide // 2
        return inputs * wide + 2 * wide + after * d

    # Where cells are, how wide their input is: encoder, decoder, and with two cells the decoder once more.
    merge = chosen.get("decoder_merge", "add")
    places = [(encoder_layers, 2 * d), (decoder_layers, 3 * d if merge == "concat" else 2 * d)]
    if merge == "two-cells":
        places.append((decoder_layers, 2 * d))
    sharing = chosen.get("depthwise_sharing", "gates")
    cells = sum((1 if sharing == "all" else layers) * net(inputs) for layers, inputs in places)
    if chosen.get("depthwise_gate_scope") == "model":
        cells += gates(2 * d)
    else:
        cells += sum((layers if sharing == "none" else 1) * gates(inputs) for layers, inputs in places)

    attention = 4 * d * d + (4 * d if chosen.get("attention_bias") else 0)
    distance = chosen.get("max_relative_positions", 0)
    tables = 0
    if distance:
        terms = 2 if chosen.get("relative_position_terms") == "key-value" else 1
        tables = terms * (2 * distance + 1) * (d // heads)
    attentions = (encoder_layers + 2 * decoder_layers) * attention + (encoder_layers + decoder_layers) * tables

    norms = ((encoder_layers - 1) + 2 * (decoder_layers - 1) + 2) * 2 * d
    embeddings = 2 * VOCABULARY * d
    output = VOCABULARY * d
    return cells + attentions + norms + embeddings + output


@every_variant
def test_the_number_of_parameters_is_the_formulas(options: dict[str, Any]) -> None:
    assert sum(parameter.numel() for parameter in build_tiny(**options).parameters()) == formula(options)
