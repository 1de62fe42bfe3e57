"""Checkpoint files as a training run leaves them, and fairseq's own tiny transformer, for the tests of growing."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from tiny_models import TINY, task_of
from torch import Tensor

#: fairseq's transformer with norms before sub-layers, as sdt_transformer has them.
STOCK: dict[str, Any] = {
    **TINY,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_embed_dim": 24,
    "decoder_ffn_embed_dim": 32,
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
}


def stock_model(**options: Any) -> tuple[FairseqEncoderDecoderModel, Namespace]:
    """A model in evaluation mode in which no two numbers are the same, and its options as fairseq completes them."""
    args = Namespace(**(STOCK | options), arch="transformer", _name="transformer")
    base_architecture(args)
    torch.manual_seed(2)
    model = TransformerModel.build_model(args, task_of())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval(), args


def checkpoint_of(values: dict[str, Tensor], options: Any, updates: int = 7) -> dict[str, Any]:
    """What fairseq saves of a model, and of the updates of the runs that made it."""
    return {
        "args": None,
        "cfg": {"model": options},
        "model": values,
        "optimizer_history": [{"num_updates": 3}, {"num_updates": updates}],
    }


def save(path: Path, state: Any) -> str:
    """Save, and give the path as an option has it."""
    torch.save(state, path)
    return str(path)


def stock_file(folder: Path, **options: Any) -> str:
    """A checkpoint of :func:`stock_model` in a folder."""
    model, args = stock_model(**options)
    return save(folder / "stock.pt", checkpoint_of(model.state_dict(), args))
