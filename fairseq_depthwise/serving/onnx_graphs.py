"""Graphs as ONNX files: written from traced ones, optionally in int8, and run by onnxruntime."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_compat.errors import UserError, first_line
from fairseq_depthwise.serving.traced_graphs import TracedGraphs

#: The version of ONNX's operators. onnxruntime 1.17 and newer has it.
OPSET = 20

#: What a file's metadata is read by.
PRODUCER = "fairseq-depthwise"


def write_onnx(graphs: TracedGraphs, files: Mapping[str, str], about: Mapping[str, Any]) -> None:
    """Write both graphs, checked by :mod:`onnx`.

    Args:
        graphs: not in place.
        files: of the encoder and the step, by their names.
        about: ``inputs`` and ``outputs`` of each: tensors with their ``name``, in order.

    Raises:
        UserError: onnx is not installed, or it cannot express or refuses the graph.
    """
    onnx = require("onnx")
    require("onnxscript")
    for (name, file), program in zip(files.items(), (graphs.encoder, graphs.step), strict=True):
        inputs, outputs = ([tensor["name"] for tensor in about[name][side]] for side in ("inputs", "outputs"))
        try:
            with _silent():
                written = torch.onnx.export(
                    program, dynamo=True, input_names=inputs, output_names=outputs, opset_version=OPSET
                )
            assert written is not None
            written.model.producer_name = PRODUCER
            written.save(file)
            onnx.checker.check_model(file, full_check=True)
        except OSError:
            raise
        except Exception as error:  # of many kinds, for which torch has no common one
            raise UserError(f"the {name} cannot be written as ONNX: {first_line(error)}") from error


def quantize_onnx(file: str) -> None:
    """Replace the weights of matrix products by int8, one scale for each output; inputs are quantized while it runs.

    Products of several matrices at once, the linear layers of a multi-unit encoder, stay in float32.
    """
    quantization, aside = require("onnxruntime.quantization"), f"{file}.int8"
    graph = require("onnx").load(file).graph
    dimensions = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    # Several products at once, as the units of a layer have them, have no scale for each output in onnxruntime.
    several = [node.name for node in graph.node if any(dimensions.get(name, 2) > 2 for name in node.input)]
    with _silent():
        quantization.quantize_dynamic(
            file, aside, per_channel=True, weight_type=quantization.QuantType.QInt8, op_types_to_quantize=["MatMul"],
            nodes_to_exclude=several,
        )  # fmt: skip
    os.replace(aside, file)


class OnnxGraphs:
    """Graphs in files, run by onnxruntime on the CPU.

    Args:
        encoder, step: the files.
        threads: of each product.

    Raises:
        UserError: onnxruntime is not installed, or refuses a file.
    """

    def __init__(self, encoder: str, step: str, *, threads: int) -> None:
        runtime = require("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        sessions = []
        for path in (encoder, step):
            try:
                sessions.append(runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
            except Exception as error:  # onnxruntime has a class for each reason, and none for all
                raise UserError(f"{path} cannot be loaded: {first_line(error)}") from error
        self._encoder, self._step = sessions

    def encode(self, source_tokens: Tensor) -> Sequence[Tensor]:
        """Do what :class:`~fairseq_depthwise.modules.decoding.search_graphs.EncoderGraph` does."""
        return _run(self._encoder, (source_tokens,))

    def step(self, *arguments: Tensor) -> Sequence[Tensor]:
        """Do what :class:`~fairseq_depthwise.modules.decoding.search_graphs.StepGraph` does."""
        return _run(self._step, arguments)


def _run(session: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    names = [entry.name for entry in session.get_inputs()]
    values = {name: argument.contiguous().numpy() for name, argument in zip(names, arguments, strict=True)}
    try:
        results = session.run(None, values)
    except Exception as error:  # onnxruntime has a class for each reason, and none for all
        raise UserError(f"onnxruntime cannot run the graph: {first_line(error)}") from error
    return [torch.from_numpy(array) for array in results]


def require(module: str) -> Any:
    """Return a module that the extra ``onnx`` brings.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{module} is not installed; pip install 'fairseq-depthwise[onnx]'") from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what the exporters print of their own progress."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
