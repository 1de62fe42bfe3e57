"""Translates with what `fairseq-depthwise export` wrote; needs PyTorch and NumPy alone.

Lines of tokens in (tokenized, in subwords), lines of tokens out:

    python translate.py EXPORTED < test.bpe.en > test.bpe.de

The folder is looked through before it is loaded (safe_program.py): it may be a stranger's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import exported_folder
import torch
from exported_folder import ExportError, Graph
from safe_program import ProgramError, load_program


def load_graph(path: Path) -> Graph:
    """Return a program as a function of arrays."""
    try:
        program = load_program(path)
    except ProgramError as error:
        raise ExportError(str(error)) from error
    inputs = set(program.graph_signature.user_inputs)
    types = [node.meta["val"].dtype for node in program.graph.nodes if node.name in inputs]
    call = program.module()

    @torch.inference_mode()
    def graph(*arrays: Any) -> list[Any]:
        # NumPy has no bfloat16: outside of the program such tensors are float32.
        tensors = (torch.from_numpy(array).to(dtype) for array, dtype in zip(arrays, types, strict=True))
        return [tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy() for tensor in call(*tensors)]

    return graph


class ExportedTranslator(exported_folder.ExportedTranslator):
    """The model in a folder."""

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        super().__init__(folder, ".pt2", load_graph)


def main() -> int:
    return exported_folder.run("translate.py", ExportedTranslator)


if __name__ == "__main__":
    sys.exit(main())
