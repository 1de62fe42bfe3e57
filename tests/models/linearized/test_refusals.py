"""``--arch linearized_transformer``: what it refuses, in a sentence."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of, other_architecture
from tiny_models import task_of

from fairseq_compat import UserError
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
        ({"probe_path": "{none}"}, "{none}"),
        ({"probe_path": "{depthwise}", "probe_layers": ""}, "--probe-layers"),
        ({"probe_path": "{depthwise}", "probe_layers": "encoder.1,encoder.4"}, "encoder.4: give some of the layers"),
        ({"probe_path": "{depthwise}", "probe_state": "cell"}, "--probe-state cell"),
        ({"probe_path": "{stock}", "probe_state": "output"}, "--probe-state output: the layers of {stock}"),
        ({"probe_path": "{lstm}"}, "LSTMModel"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, str], said: str, tmp_path: Path) -> None:
    known = {
        "none": str(tmp_path / "none.pt"),
        "depthwise": checkpoint_of(tmp_path, DEPTHWISE),
        "stock": checkpoint_of(tmp_path, "transformer", "stock.pt"),
        "lstm": other_architecture(tmp_path, "lstm"),
    }
    with pytest.raises(UserError) as error:
        build(**{name: value.format(**known) for name, value in options.items()})
    assert said.format(**known) in str(error.value)
