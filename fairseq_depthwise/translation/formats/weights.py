"""The format ``safetensors``: the weights as they are, in a folder that is read as a checkpoint."""

from __future__ import annotations

from typing import Any

from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.weights_folder import write_weights


def require_exportable(checkpoint: Checkpoint) -> None:
    """Accept every model."""


def write(checkpoint: Checkpoint, model: Any, task: FairseqTask, folder: str, *, int8: bool) -> dict[str, Any]:
    """Write the weights of a checkpoint into a folder; return what the configuration says of them."""
    if not isinstance(task, TranslationTask):  # it would be read as a model of one direction, without its tokens
        raise UserError(f"{checkpoint.path} translates in many directions; export each with --format onnx")
    return write_weights(checkpoint.state, checkpoint.architecture, folder)
