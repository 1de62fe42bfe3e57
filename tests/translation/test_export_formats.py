"""The tables of export formats and of backends: each line leads to a module with the functions that are called."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from fairseq_depthwise.backends import BACKENDS
from fairseq_depthwise.checkpoints.recorded_paths import CONFIG
from fairseq_depthwise.translation.export_formats import FORMATS, format_of, format_of_graphs


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_written_read_and_recognized(name: str, tmp_path: Path) -> None:
    export_format = FORMATS[name]
    module = export_format.load()
    assert callable(module.require_exportable)
    assert callable(module.write)
    assert callable(getattr(module, "open_models", None)) != export_format.is_weights_folder

    assert format_of(str(tmp_path)) is None
    (tmp_path / CONFIG).touch()
    (tmp_path / export_format.file).touch()
    assert format_of(str(tmp_path)) is export_format
    assert (format_of_graphs(str(tmp_path)) is None) == export_format.is_weights_folder


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_makes_graphs(name: str) -> None:
    assert callable(import_module(BACKENDS[name]).make_graphs)
