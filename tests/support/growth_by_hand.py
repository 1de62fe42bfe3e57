"""Grown models that are put together by hand, layer by layer, from copies of a shallow one's parts."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models import MODEL_REGISTRY, FairseqEncoderDecoderModel
from tiny_models import FAMILIES, SOURCE, TARGET, task_of
from torch import Tensor, nn

from fairseq_depthwise.growth.parameter_map import ParameterMap, grow_model


def build(family: str, **options: Any) -> FairseqEncoderDecoderModel:
    return MODEL_REGISTRY[family].build_model(SimpleNamespace(**(FAMILIES[family] | options)), task_of())


def trained(family: str, seed: int = 1, **options: Any) -> FairseqEncoderDecoderModel:
    """A shallow model in evaluation mode in which no two numbers are the same: biases, norms, connections and all."""
    torch.manual_seed(seed)
    model = build(family, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def grow(
    model: FairseqEncoderDecoderModel,
    family: str,
    sources: dict[str, list[int]],
    **options: Any,
) -> ParameterMap:
    depths = {f"{side}_layers": len(layers) for side, layers in sources.items()}
    return grow_model(model, lambda: build(family, **(options | depths)), sources)


def scores(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(SOURCE, None, TARGET)[0]


def assert_same_model(found: nn.Module, expected: nn.Module) -> None:
    """The same first forward, bit for bit, and the same parameters under the same names."""
    assert torch.equal(scores(found), scores(expected))
    one, other = found.state_dict(), expected.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def depthwise_by_hand(
    shallow: nn.Module, sources: dict[str, list[int]], sharing: str = "gates", scope: str = "stack"
) -> nn.Module:
    """Layers by the table; a copy of layer 1 takes layer 2's norms, or fresh ones; what was shared is shared again."""
    deep = copy.deepcopy(shallow)
    for side, table in sources.items():
        old = getattr(shallow, side).layers
        layers = nn.ModuleList()
        for number, source in enumerate(table):
            layer = copy.deepcopy(old[source])
            for norm in ("input_norm", "query_norm"):
                if number > 0 and source == 0 and hasattr(layer, norm):
                    fresh = nn.LayerNorm(16)
                    setattr(layer, norm, copy.deepcopy(getattr(old[1], norm)) if len(old) > 1 else fresh)
            layers.append(layer)
        getattr(deep, side).layers = layers
    for side in ("encoder", "decoder"):
        for place in ("cell", "middle_cell"):
            cells = [cell for layer in getattr(deep, side).layers if (cell := getattr(layer, place, None)) is not None]
            for cell in cells:
                if sharing != "none" and hasattr(cell, "gates"):
                    cell.gates = deep.encoder.layers[0].cell.gates if scope == "model" else cells[0].gates
                if sharing == "all":
                    cell.hidden_net = cells[0].hidden_net
    return deep
