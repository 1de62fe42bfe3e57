"""Graphs that are traced: the hypotheses of fairseq's search, and what is refused; where compiled ones are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_checks import assert_same_hypotheses, eager_graphs, sentences
from tiny_models import MUTE_VARIANTS, SDT_VARIANTS, VARIANTS, build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.backends.graph_search import Graphs
from fairseq_depthwise.backends.onnx_files import write_graphs
from fairseq_depthwise.backends.traced import require_equal, trace
from fairseq_depthwise.translation.translation_options import BeamOptions

pytestmark = pytest.mark.slow

#: Small models that together have nearly all that has to be traced.
TRACED: dict[str, dict[str, Any]] = {
    "depth-wise": {
        "decoder_merge": "two-cells",
        "depthwise_gate_norm": "joint",
        "depthwise_attention_skip": True,
        "decoder_learned_pos": True,
        "encoder_layers": 1,
        "decoder_layers": 2,
    },
    "mute": {
        "name": "mute_transformer",
        "unit_sequential": True,
        "permutation_at_inference": "hard",
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
}


def ready(**options: Any) -> Any:
    """A tiny model after fairseq's hooks before generation."""
    torch.manual_seed(6)
    model = build_tiny(max_source_positions=8, max_target_positions=30, **options).eval()
    model.prepare_for_inference_(BeamOptions().cfg())
    return model


@pytest.mark.parametrize("variant", TRACED)
def test_traced_graphs_take_any_size(variant: str) -> None:
    model = ready(**TRACED[variant])
    graphs = Graphs(*(program.module() for program in trace([model], in_place=False)))
    require_equal(graphs, [model], "model.pt")
    for lengths, beam, longest in (((1,), 1, 3), ((7,), 3, 29), ((2, 5, 1), 2, 20)):
        assert_same_hypotheses([model], graphs, sentences(model, *lengths), beam=beam, longest=longest)


@pytest.mark.long
@pytest.mark.parametrize("options", [*VARIANTS.values(), *SDT_VARIANTS.values(), *MUTE_VARIANTS.values()], ids=str)
def test_every_variant_is_exported_and_taken_from_strangers(options: dict[str, Any], tmp_path: Path) -> None:
    """Its graphs are read again as a stranger's would be, and compared with the model."""
    pytest.importorskip("onnxruntime")
    write_graphs([ready(**options)], "model.pt", str(tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda best, numbers, *others: (torch.zeros_like(best), numbers, *others),
        lambda best, numbers, *others: (best.flip(1), numbers.flip(1), *others),  # the best is the last
    ],
)
def test_graphs_that_differ_from_the_model_are_refused(wrong: Callable[..., Any]) -> None:
    """Such as a future release of torch might trace."""
    model = ready(encoder_layers=1, decoder_layers=1)
    graphs = eager_graphs([model], in_place=False)
    changed = Graphs(graphs.encode, lambda *given: wrong(*graphs.step(*given)))
    with pytest.raises(UserError, match=r"model.pt: .* differ .* by [01]"):
        require_equal(changed, [model], "model.pt")
