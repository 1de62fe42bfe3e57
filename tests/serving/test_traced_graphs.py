"""Graphs that are traced, compiled and written as ONNX: the hypotheses of fairseq's search, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from graph_checks import EagerGraphs, assert_same_hypotheses, sentences
from tiny_models import build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.serving import compiled_graphs as compiling
from fairseq_depthwise.serving.beam_search import BeamOptions
from fairseq_depthwise.serving.compiled_graphs import cache_folder, compiled_graphs
from fairseq_depthwise.serving.traced_graphs import callable_programs, require_equal, trace

#: Small models that together have nearly all that has to be traced.
TRACED: dict[str, dict[str, Any]] = {
    "depth-wise": {
        "decoder_merge": "two-cells",
        "depthwise_kernel": "compile",
        "decoder_learned_pos": True,
        "encoder_layers": 1,
        "decoder_layers": 2,
    },
    "mute": {
        "name": "mute_transformer",
        "unit_sequential": True,
        "permutation_at_inference": "hard",
        "adaptive_softmax_cutoff": "5,8",
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
    graphs = callable_programs(trace([model], "model.pt", in_place=False))
    require_equal(graphs, [model], "model.pt")
    for lengths, beam, longest in (((1,), 1, 3), ((7,), 3, 29), ((2, 5, 1), 2, 20)):
        assert_same_hypotheses([model], graphs, sentences(model, *lengths), beam=beam, longest=longest)


def test_weights_that_nothing_reads_are_left_out() -> None:
    """Those of linear layers that are computed together, of which a joined copy is read."""
    model = ready(encoder_layers=1, decoder_layers=1)
    program = trace([model], "model.pt", in_place=False).step
    assert not [name for name in program.state_dict if "self_attention.query_projection" in name]
    assert [name for name in program.constants if "self_attention._joined" in name]


def test_graphs_that_differ_from_the_model_are_refused() -> None:
    """Such as a future release of torch might trace."""
    model = ready(encoder_layers=1, decoder_layers=1)
    graphs = EagerGraphs([model], in_place=False)
    wrong = SimpleNamespace(
        encode=graphs.encode, step=lambda *given: (torch.zeros_like(graphs.step(*given)[0]), *graphs.step(*given)[1:])
    )
    with pytest.raises(UserError, match=r"model.pt: .* differ .* by 0\.[89]"):
        require_equal(wrong, [model], "model.pt")


def test_what_torch_cannot_trace_is_refused_with_its_reason() -> None:
    model = ready(encoder_layers=1, decoder_layers=1)
    model.decoder.layers[0].register_forward_pre_hook(lambda *_: float(torch.ones(1).sum() + model.x))
    with pytest.raises(UserError, match=r"decoder of model.pt .*: AttributeError"):
        trace([model], "model.pt", in_place=True)


# --- compiled ahead of time ------------------------------------------------------------------------------------------


#: Settings that take a minute: without the trials of products, and the code between them not optimized.
_QUICK = {"freezing": True, "aot_inductor.compile_wrapper_opt_level": "O0"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def in_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(compiling.VARIABLE, str(cache))
    monkeypatch.setattr(compiling, "_SETTINGS", _QUICK)
    return cache_folder()


@pytest.mark.slow
@pytest.mark.xdist_group("compiled")
def test_compiled_graphs_are_kept_and_take_any_size(in_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ready(encoder_layers=1, decoder_layers=1)
    said: list[str] = []
    graphs = compiled_graphs([model], "model.pt", said.append)
    assert len([sentence for sentence in said if "model.pt" in sentence and "part" in sentence]) >= 3
    for lengths, beam, longest in (((1,), 1, 3), ((7,), 3, 29), ((2, 5, 1), 2, 20), (range(1, 8), 5, 9)):
        assert_same_hypotheses([model], graphs, sentences(model, *lengths), beam=beam, longest=longest)
    # A second time nothing is compiled: there need not even be a compiler.
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, "/nowhere/g++"))
    again = compiled_graphs([model], "model.pt", said.append)
    assert_same_hypotheses([model], again, sentences(model, 3, 4), beam=2, longest=9)
    (kept,) = os.listdir(in_cache)
    assert not [name for name in os.listdir(in_cache) if name.startswith(".")]
    # Other weights are another model.
    before = model.decoder.embedding.tokens.weight.detach().clone()
    with torch.no_grad():
        model.decoder.embedding.tokens.weight.mul_(1.5)
    with pytest.raises(UserError, match="compiler"):
        compiled_graphs([model], "model.pt", said.append)
    (in_cache / kept / "encoder.pt2").write_bytes(b"damaged")
    with torch.no_grad():
        model.decoder.embedding.tokens.weight.copy_(before)
    with pytest.raises(UserError, match=kept):
        compiled_graphs([model], "model.pt", said.append)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in it would be run."""
    monkeypatch.setenv(compiling.VARIABLE, str(tmp_path))
    folder = cache_folder()
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    with pytest.raises(UserError, match=str(folder)):
        cache_folder()


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(compiling.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(UserError, match=compiling.VARIABLE):
        cache_folder()
