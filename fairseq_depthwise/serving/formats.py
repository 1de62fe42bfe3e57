"""The formats of exported graphs: each a line of :data:`FORMATS` and a module, imported when it is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Format:
    """Files of graphs.

    Attributes:
        ending: of their names.
        precisions: in which they may compute.
        module: has ``require()``, ``write(program, file, about)``, and ``load(files)``, which runs no code in them; for
            int8 ``quantize(file)``.
    """

    ending: str
    precisions: tuple[str, ...]
    module: str

    def imported(self) -> Any:
        """Return the module."""
        return importlib.import_module(f"fairseq_depthwise.serving.{self.module}")


#: Name, for ``--format`` -> what it is.
FORMATS = {
    "torch": Format(".pt2", ("float32", "bfloat16"), "torch_programs"),
    "onnx": Format(".onnx", ("float32", "int8"), "onnx_graphs"),
}
