"""The formats of ``export``: each is declared here, and its module writes and reads it.

A new format is a module with the functions ``require_exportable`` and ``write``, and ``open_models`` unless its folders
are read as checkpoints, and an entry of :data:`FORMATS`. Nothing here imports torch: ``--help`` lists the formats.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NamedTuple

from fairseq_depthwise.checkpoints.recorded_paths import (
    BEST,
    CONFIG,
    WEIGHTS,
    is_exported,
    require_one_model,
)

#: What the marker of an exported folder says it is.
KIND = "export"


class ExportFormat(NamedTuple):
    """A format.

    Attributes:
        help: what is written, for ``--format``.
        file: a file that only folders of this format have.
        module: writes and reads it.
        extra: the installation's extra that it needs, then the packages in it.
        has_int8: whether matrix products can be in int8.
        is_weights_folder: whether folders hold weights, and are read as checkpoints; others hold graphs.
    """

    help: str
    file: str
    module: str
    extra: tuple[str, ...]
    has_int8: bool = False
    is_weights_folder: bool = False

    def load(self) -> Any:
        """Import the module."""
        return import_module(self.module)


#: Name -> format; the first is the default.
FORMATS = {
    "onnx": ExportFormat(
        "graphs as ONNX files, for onnxruntime",
        file="encoder.onnx",
        module="fairseq_depthwise.translation.formats.onnx_graphs",
        extra=("onnx", "onnx", "onnxscript", "onnxruntime"),
        has_int8=True,
    ),
    "safetensors": ExportFormat(
        "the weights, for this plugin",
        file=WEIGHTS,
        module="fairseq_depthwise.translation.formats.weights",
        extra=("safetensors", "safetensors"),
        is_weights_folder=True,
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
    # Of an older or a damaged export, the reader of graphs says what is wrong.
    return next(iter(FORMATS.values())) if is_exported(folder) else None


def format_of_graphs(folder: str) -> ExportFormat | None:
    """Return the format of an exported folder with graphs; None for everything else."""
    export_format = format_of(folder)
    return None if export_format is None or export_format.is_weights_folder else export_format
