"""The formats of ``export``: each is declared here, and its module writes and reads it.

A new format is a line in :data:`FORMATS` and a module with the functions ``require_exportable`` and ``write``, and
``open_models`` unless its folders are read like checkpoints. Nothing here imports PyTorch, as ``--help`` lists the
formats.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

from fairseq_depthwise.checkpoints.recorded_paths import BEST, CONFIG, ENCODER, WEIGHTS, require_one_model


class ExportFormat(NamedTuple):
    """A format.

    Attributes:
        help: what is written, for ``--format``.
        file: a file that only folders of this format have.
        module: writes and reads it.
        extra: the installation's extra that it needs, then the packages in it.
        has_int8: whether matrix products can be in int8.
        is_checkpoint: whether folders are read like checkpoints.
    """

    help: str
    file: str
    module: str
    extra: tuple[str, ...]
    has_int8: bool = False
    is_checkpoint: bool = False

    def load(self) -> Any:
        """Import the module."""
        return import_module(self.module)


#: Name -> format; the first is the default.
FORMATS = {
    "onnx": ExportFormat(
        "graphs as ONNX files, for onnxruntime",
        file=ENCODER,
        module="fairseq_depthwise.translation.formats.onnx_graphs",
        extra=("onnx", "onnx", "onnxscript", "onnxruntime"),
        has_int8=True,
    ),
    "safetensors": ExportFormat(
        "the weights, for this plugin",
        file=WEIGHTS,
        module="fairseq_depthwise.translation.formats.weights",
        extra=("safetensors", "safetensors"),
        is_checkpoint=True,
    ),
}


def format_of(folder: str) -> ExportFormat | None:
    """Return the format of an exported folder; None for everything else.

    Raises:
        UserError: the folder also has a checkpoint.
    """
    if not folder or not os.path.isfile(os.path.join(folder, CONFIG)):
        return None
    require_one_model(folder)
    if os.path.isfile(os.path.join(folder, BEST)):  # the configuration is another program's
        return None
    for export_format in FORMATS.values():
        if os.path.exists(os.path.join(folder, export_format.file)):
            return export_format
    return next(iter(FORMATS.values()))  # an older or a damaged one, which its reader refuses


def format_of_graphs(folder: str) -> ExportFormat | None:
    """Return the format of an exported folder that is not read like a checkpoint; None for everything else."""
    export_format = format_of(folder)
    return None if export_format is None or export_format.is_checkpoint else export_format
