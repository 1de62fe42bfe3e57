"""Translates with what `fairseq-depthwise export --format onnx` wrote; needs onnxruntime and NumPy alone.

Lines of tokens in (tokenized, in subwords), lines of tokens out:

    python translate_onnx.py EXPORTED < test.bpe.en > test.bpe.de

A file in ONNX is data: no code in it is run, and it is refused if it has other operators than export writes.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import exported_folder
import onnxruntime
from exported_folder import ExportError, Graph
from safe_onnx import require_plain_operators


def load_graph(path: Path, threads: int) -> Graph:
    """Return a graph as a function of arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Without it the int8 products of a CPU with AVX2 or AVX-512, but without VNNI, overflow.
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        require_plain_operators(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each reason, and none for all
        raise ExportError(f"{path} is damaged, or is nothing that onnxruntime can load: {error}") from error
    names = [entry.name for entry in session.get_inputs()]

    def graph(*arrays: Any) -> list[Any]:
        found: list[Any] = session.run(None, dict(zip(names, arrays, strict=True)))
        return found

    return graph


class ExportedTranslator(exported_folder.ExportedTranslator):
    """The model in a folder."""

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        super().__init__(folder, ".onnx", functools.partial(load_graph, threads=threads))


def main() -> int:
    return exported_folder.run("translate_onnx.py", ExportedTranslator)


if __name__ == "__main__":
    sys.exit(main())
