"""A tiny multi-unit model, its checkpoint and data for it, for the tests of what looks at units."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models import FairseqEncoderDecoderModel
from tiny_checkpoints import ENTRIES, binarized, saved
from tiny_models import FAMILIES, task_of

from fairseq_depthwise.models.mute.model import MuteTransformer

MUTE: dict[str, Any] = {
    **FAMILIES["mute_transformer"],
    "decoder_layers": 1,
    "decoder_ffn_embed_dim": 24,
    "encoder_units": 4,
}

#: Source sentences of 2 to 6 words, of a dictionary of 8; one of each length is unlike the others.
SENTENCES = [
    "w0 w1 w2", "w3 w4", "w5 w6 w7 w0 w1 w2", "w7 w1", "w2 w2 w2 w3 w4", "w6 w5 w4", "w0 w7 w3 w1",
]  # fmt: skip


def unit_model(**options: Any) -> FairseqEncoderDecoderModel:
    """A seeded model in evaluation mode, whose weights and biases differ from unit to unit."""
    torch.manual_seed(3)
    model = MuteTransformer.build_model(SimpleNamespace(**(MUTE | options)), task_of(ENTRIES, ENTRIES))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "order" in name:
                parameter.uniform_(0, 1)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def unit_checkpoint(folder: Path, name: str = "mute.pt", **options: Any) -> str:
    """A checkpoint of :func:`unit_model`, from a training whose data folder is gone."""
    return saved(folder / name, unit_model(**options), {"_name": "mute_transformer", **MUTE, **options})


def unit_data(folder: Path, entries: int = ENTRIES, **subsets: list[str]) -> str:
    """A folder of data with a part ``valid``, and others; the target is the source."""
    texts = {"valid": SENTENCES, **subsets}
    return binarized(folder, {subset: {"src": lines, "tgt": lines} for subset, lines in texts.items()}, entries)
