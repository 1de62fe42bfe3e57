"""``--arch linearized_transformer``: what it refuses, in a sentence."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of, other_architecture
from tiny_models import task_of

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.analysis.probe.record import write_linearized
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

DEPTHWISE = "depthwise_lstm_transformer"


def build(**options: Any) -> LinearizedTransformer:
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
        ({"probe_path": "{folder}/none.pt"}, "--probe-path {folder}/none.pt"),
        ({"probe_path": "{depthwise}", "probe_layers": ""}, "--probe-layers names no layer"),
        ({"probe_path": "{depthwise}", "probe_layers": "encoder.1,encoder.4"}, "no layer encoder.4; {depthwise}"),
        ({"probe_path": "{depthwise}", "probe_layers": "encoder.0"}, "no layer encoder.0"),
        ({"probe_path": "{depthwise}", "probe_layers": "3"}, "no layer 3"),
        ({"probe_path": "{depthwise}", "probe_state": "cell"}, "--probe-state cell"),
        ({"probe_path": "{stock}", "probe_state": "output"}, "--probe-state output: the layers of {stock}"),
        ({"probe_path": "{linearized}"}, "--probe-path {linearized}"),
        ({"probe_path": "{smaller}"}, "--probe-path {smaller}"),
        ({"probe_path": "{fconv}"}, "FConvModel"),
        ({"probe_path": "{lstm}"}, "LSTMModel"),
        ({"probe_path": "{theirs}"}, "--probe-path {theirs}: the trained model's architecture, theirs"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, str], said: str, tmp_path: Path) -> None:
    known = {"folder": str(tmp_path)}
    needed = options.get("probe_path", "").strip("{}")
    if needed == "depthwise":
        known[needed] = checkpoint_of(tmp_path, DEPTHWISE)
    elif needed in ("fconv", "lstm"):
        known[needed] = other_architecture(tmp_path, needed)
    elif needed == "linearized":
        fit = LinearFit(torch.eye(32), torch.zeros(32), 0.0, 0.0, 1)
        known[needed] = str(tmp_path / "linearized.pt")
        write_linearized(checkpoint_of(tmp_path, DEPTHWISE), known[needed], "encoder.1", "pair", fit)
    elif needed == "stock":
        known[needed] = checkpoint_of(tmp_path, "transformer")
    elif needed == "theirs":
        known[needed] = checkpoint_of(tmp_path, DEPTHWISE, _name="theirs")
    elif needed == "smaller":
        known[needed] = str(tmp_path / "smaller.pt")
        state = checkpoints.load_checkpoint(checkpoint_of(tmp_path, DEPTHWISE))
        state["model"] = {name: value[:9] if len(value) == 12 else value for name, value in state["model"].items()}
        torch.save(state, known[needed])
    with pytest.raises(UserError) as error:
        build(**{name: value.format(**known) for name, value in options.items()})
    assert said.format(**known) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"_name": 1}', '{"_name": "theirs"}', "[" * 100_000])
def test_damaged_options_of_the_trained_model(text: str) -> None:
    with pytest.raises(UserError, match=r"--probe-model|theirs"):
        build(probe_model=text)
