"""A tiny multi-unit model, its checkpoint and data for it, for the tests of what looks at units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq.models import FairseqEncoderDecoderModel
from probe_checkpoints import checkpoint_of
from tiny_checkpoints import ENTRIES, binarized
from tiny_models import build_tiny

MUTE: dict[str, Any] = {"decoder_layers": 1, "encoder_units": 4}

#: Source sentences of 2 to 6 words, of a dictionary of 8; one of each length is unlike the others.
SENTENCES = [
    "w0 w1 w2", "w3 w4", "w5 w6 w7 w0 w1 w2", "w7 w1", "w2 w2 w2 w3 w4", "w6 w5 w4", "w0 w7 w3 w1",
]  # fmt: skip


def unit_model(**options: Any) -> FairseqEncoderDecoderModel:
    return build_tiny("mute_transformer", **(MUTE | options))


def unit_checkpoint(folder: Path, name: str = "mute.pt", **options: Any) -> str:
    """A checkpoint of :func:`unit_model`, from a training whose data folder is gone."""
    return checkpoint_of(folder, "mute_transformer", name, **(MUTE | options))


def unit_data(folder: Path, entries: int = ENTRIES, **subsets: list[str]) -> str:
    """A folder of data with a part ``valid``, and others; the target is the source."""
    texts = {"valid": SENTENCES, **subsets}
    return binarized(folder, {subset: {"src": lines, "tgt": lines} for subset, lines in texts.items()}, entries)
