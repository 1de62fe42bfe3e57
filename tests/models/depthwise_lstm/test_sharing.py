"""What the layers share, by the storage of every parameter, and parameter counts by a formula of their own."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
from tiny_models import VARIANTS, build_tiny

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


# --- counts ----------------------------------------------------------------------------------------------------------
