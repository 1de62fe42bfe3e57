"""``fairseq-depthwise grow``: what the new file holds, and what is printed."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growth_checkpoints import checkpoint_of, save
from tiny_models import FAMILIES, build_tiny

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise import cli
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.growing import grow_checkpoint

SDT = {"encoder_layers": 4, "encoder_block_size": 2, "share_all_embeddings": True}


def shallow(path: Path, family: str = "sdt_transformer", **options: Any) -> str:
    """A checkpoint of a tiny model after 7 updates."""
    model = build_tiny(family, **options)
    state = checkpoint_of(model.state_dict(), {**FAMILIES[family], **options, "_name": family})
    return save(path / "shallow.pt", state)


def grow(*arguments: object) -> int:
    return cli.main(["grow", *map(str, arguments)])


def test_decoder_side_and_options_as_a_namespace(tmp_path: Path) -> None:
    state = checkpoints.load_checkpoint(shallow(tmp_path, **SDT))
    state["args"], state["cfg"] = Namespace(**state["cfg"]["model"]), None
    output = tmp_path / "deep.pt"
    assert grow(save(tmp_path / "old.pt", state), output, "--layers", 5, "--side", "decoder") == 0
    grown = checkpoints.load_checkpoint(output)
    assert (grown["args"].decoder_layers, grown["args"].encoder_layers) == (5, 4)
    assert "decoder.layers.4.cross_attention.key_projection.weight" in grown["model"]


@pytest.mark.parametrize("unknown", [{"init": "zeros"}, {"frozen": "copies"}, {"side": "both"}, {"strategy": "bottom"}])
def test_unknown_values_are_refused_in_programs(unknown: dict[str, str], tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(shallow(tmp_path, **SDT))
    with pytest.raises(UserError, match="|".join(unknown.values())):
        grow_checkpoint(checkpoint, 6, **{"strategy": "top-most", "side": "encoder", **unknown})


def test_the_result_is_printed(tmp_path: Path, printed: Callable[..., str], document: Callable[..., Any]) -> None:
    path, output = shallow(tmp_path, **SDT), tmp_path / "deep.pt"
    result = document("grow", path, output, "--layers", 6)
    model = checkpoints.load_checkpoint(output)["model"]
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in model.values()}
    assert result["parameters"] == sum(distinct.values())
    assert (result["layers_before"], result["layers"], result["restarts_at"]) == (4, 6, 7)
    assert "from 4 to 6 layers (top-most)" in printed("grow", path, output, "--layers", 6, "--force")
