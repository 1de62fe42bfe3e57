"""The format ``onnx``: the two graphs of a beam search as ONNX files, for programs that do not know fairseq."""

from __future__ import annotations

import os
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import FairseqTask

from fairseq_compat.provenance import file_digest
from fairseq_depthwise.backends import onnx_files
from fairseq_depthwise.backends.traced import refuse_unless_ours
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.translation.exported_graphs import open_graphs
from fairseq_depthwise.translation.loaded_models import LoadedModels, ModelRequest
from fairseq_depthwise.translation.translation_options import BeamOptions


def require_exportable(checkpoint: Checkpoint) -> None:
    """Raise UserError if a model cannot be traced."""
    architecture = checkpoint.architecture
    refuse_unless_ours(checkpoint.path, ARCH_MODEL_REGISTRY[architecture], architecture)


def write(checkpoint: Checkpoint, model: Any, task: FairseqTask, folder: str, *, int8: bool) -> dict[str, Any]:
    """Write the graphs of a model into a folder; return their part of its configuration."""
    # Packs the linear layers, so that what is traced is what a search runs.
    model.prepare_for_inference_(BeamOptions().cfg())
    functions = onnx_files.write_graphs([model], checkpoint.path, folder, int8=int8)
    for graph in functions.values():
        graph["sha256"] = file_digest(os.path.join(folder, graph["file"]))
    return {"functions": functions}


def open_models(request: ModelRequest) -> LoadedModels:
    """Open a folder to translate with; nothing in it is run as code."""
    return open_graphs(request, ".onnx", onnx_files.load)
