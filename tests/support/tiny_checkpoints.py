"""Checkpoints of tiny models for the tests of what reads checkpoints."""

from __future__ import annotations

from typing import Any

from fairseq.models import FairseqEncoderDecoderModel
from tiny_models import FAMILIES, build_tiny


def tiny_checkpoint(
    name: str = "sdt_transformer",
    *,
    extra: dict[str, Any] | None = None,
    parts: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], FairseqEncoderDecoderModel]:
    """A checkpoint as fairseq writes it in the middle of the third epoch, and the model in it.

    Args:
        name: the model's family.
        extra: entries of ``extra_state`` in place of its own.
        parts: groups of options (``task``, ``lr_scheduler``) in place of its own.
        options: of the model.
    """
    model = build_tiny(name, **options)
    cfg = {
        "model": {"_name": name, **FAMILIES[name], **options},
        "task": {"_name": "translation"},
        "lr_scheduler": {"_name": "inverse_sqrt_restart", "warmup_updates": 4, "lr": [0.002]},
        "checkpoint": {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False},
    }
    state = {
        "args": None,
        "cfg": {**cfg, **(parts or {})},
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 1200, "lr_scheduler_state": {"best": None, "restarts": [400, 800]}}],
        "last_optimizer_state": {"state": {0: {"step": 1200}}, "param_groups": [{"params": [0]}]},
        "extra_state": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 7}, "val_loss": 4.5, "best": 4.25}
        if extra is None
        else extra,
    }
    return state, model
