"""fairseq's own transformer as a model to start from: older ones, and what of it cannot be taken over.

``tests/growth/test_warm_start.py`` shows that it goes on computing what it computed.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from growth_checkpoints import checkpoint_of, save, stock_file, stock_model

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint


def test_stock_copies_are_left_out_and_counted(tmp_path: Path) -> None:
    """fairseq 0.12.2 keeps each encoder layer's weights a second time, for a fast path that it cannot take."""
    layer = 4 * (16 * 16 + 16) + 2 * 16 * 24 + 24 + 16
    _, copies = Checkpoint.open(stock_file(tmp_path)).converted().remarks
    assert f"{2 * layer:,}" in copies


def test_a_stock_model_of_an_older_fairseq(tmp_path: Path) -> None:
    """Options under ``args``; no second copies; counters as buffers."""
    model, args = stock_model()
    copies = tuple(f"{part}_{kind}" for part in ("in_proj", "fc1", "fc2", "out_proj") for kind in ("weight", "bias"))
    values = {name: value for name, value in model.state_dict().items() if not name.endswith(copies)}
    values |= {"encoder.version": torch.ones(1), "decoder.embed_positions._float_tensor": torch.ones(1)}
    args = Namespace(**{name: value for name, value in vars(args).items() if name != "_name"})
    args.arch = "transformer_wmt_en_de"
    state = {**checkpoint_of(values, None), "cfg": None, "args": args}
    found = Checkpoint.open(save(tmp_path / "old.pt", state)).converted()
    assert len(found.remarks) == 1  # the names, and no copies
    ours = found.parameters["encoder.layers.0.self_attention.query_projection.weight"]
    assert torch.equal(ours, values["encoder.layers.0.self_attn.q_proj.weight"])


@pytest.mark.parametrize("option", ["encoder_normalize_before=False", "layernorm_embedding=True", "activation_fn=tanh"])
def test_a_stock_model_that_computes_something_else(tmp_path: Path, option: str) -> None:
    name, _, value = option.partition("=")
    path = stock_file(tmp_path, **{name: {"False": False, "True": True}.get(value, value)})
    with pytest.raises(UserError, match=f"--growth-from {path} .*--{name.replace('_', '-')} {value}"):
        Checkpoint.open(path, "--growth-from").converted()
