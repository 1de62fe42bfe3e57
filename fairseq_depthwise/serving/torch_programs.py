"""Graphs as programs of ``torch.export``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write, raising_later
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.standalone.safe_program import ProgramError, load_program
from fairseq_depthwise.serving.traced_graphs import CallableGraphs, TracedGraphs, graph_files, require_equal

#: What the names of its files end in.
ENDING = ".pt2"


def require() -> None:
    """PyTorch brings all that is needed."""


def write(
    graphs: TracedGraphs, models: Sequence[StackModel], path: str, folder: str, *, int8: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Write both graphs, and compare them with the models as they are loaded; return what :func:`graph_files` does."""
    functions = graph_files(models, ENDING)
    files = [os.path.join(folder, about["file"]) for about in functions.values()]
    for program, file in zip((graphs.encoder, graphs.step), files, strict=True):
        program._example_inputs = None  # they would be written as a pickle, which whoever loads the program would run
        with atomic_write(file) as opened, raising_later(opened) as carried_on:
            torch.export.save(program, carried_on)
    require_equal(load(files), models, path)
    return functions


def load(files: Sequence[str]) -> Graphs:
    """Load both graphs, running no code in them."""
    try:
        return CallableGraphs(*(load_program(file).module() for file in files))
    except ProgramError as error:
        raise UserError(str(error)) from error
