"""Graphs as programs of ``torch.export``."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from torch.export import ExportedProgram

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.standalone.safe_program import ProgramError, load_program


def write(program: ExportedProgram, file: str, about: object) -> None:
    """Write a graph."""
    program._example_inputs = None  # they would be written as a pickle, which whoever loads the program would run
    whole = io.BytesIO()  # PyTorch's writer ends the whole process where a disk is full
    torch.export.save(program, whole)
    with atomic_write(file) as opened:
        opened.write(whole.getbuffer())


def load(files: Sequence[str]) -> Graphs:
    """Load both graphs, running no code in them."""
    try:
        return Graphs(*(load_program(file).module() for file in files))
    except ProgramError as error:
        raise UserError(str(error)) from error
