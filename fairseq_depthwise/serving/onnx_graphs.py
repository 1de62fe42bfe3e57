"""Graphs as ONNX files: written from traced ones, optionally in int8, and run by onnxruntime."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from fairseq_compat import UserError
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.kept_graphs import kept_folder
from fairseq_depthwise.serving.standalone.safe_onnx import require_plain_operators
from fairseq_depthwise.serving.traced_graphs import GRAPHS, TracedGraphs, graph_files, require_equal, trace

#: The version of ONNX's operators. onnxruntime 1.17 and newer has it.
OPSET = 20

#: What the extra ``onnx`` brings.
_MODULES = ("onnx", "onnxscript", "onnxruntime")

#: What the names of its files end in.
ENDING = ".onnx"

#: What a file's metadata is read by.
PRODUCER = "fairseq-depthwise"


def int8_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None]) -> Graphs:
    """Return the graphs of models with matrix products in int8, made now unless they have been before."""
    require()

    def make(folder: Path) -> None:
        say(f"quantizing {path}; this takes half a minute or more, and is kept")
        write(trace(models, in_place=False), models, path, str(folder), int8=True)

    folder = kept_folder("int8", models, metadata.version("onnxruntime"), make, say)
    return load([str(folder / f"{name}{ENDING}") for name in GRAPHS])


def write(
    graphs: TracedGraphs, models: Sequence[StackModel], path: str, folder: str, *, int8: bool
) -> dict[str, Any]:  # fmt: skip
    """Write both graphs into a folder, checked by :mod:`onnx` and compared with the models; return :func:`graph_files`.

    ``int8`` lets matrix products compute in int8; a probability that differs is a UserError.
    """
    functions = graph_files(models, ENDING)
    files = [os.path.join(folder, about["file"]) for about in functions.values()]
    for about, file, program in zip(functions.values(), files, (graphs.encoder, graphs.step), strict=True):
        _write(program, file, about)
    require_equal(load(files), models, path)
    if int8:
        for file in files:
            _quantize(file)
        # How far int8 may be from float32 is the user's to say; but it has to run, and to give probabilities.
        require_equal(load(files), models, path, tolerance=1.0)
    return functions


def _write(program: ExportedProgram, file: str, about: Mapping[str, Any]) -> None:
    onnx = import_module("onnx")
    inputs, outputs = ([tensor["name"] for tensor in about[side]] for side in ("inputs", "outputs"))
    with _silent():
        written = torch.onnx.export(program, dynamo=True, input_names=inputs, output_names=outputs, opset_version=OPSET)
    assert written is not None
    written.model.producer_name = PRODUCER
    written.save(file)
    onnx.checker.check_model(file, full_check=True)


def _quantize(file: str) -> None:
    """Replace the weights of matrix products by int8, one scale for each output; inputs are quantized while it runs."""
    quantization, onnx, aside = import_module("onnxruntime.quantization"), import_module("onnx"), f"{file}.int8"
    model = onnx.load(file)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]:
        # The table that embedding and output projection share; only a weight as the product reads it is quantized.
        (order,) = (list(attribute.ints) for attribute in node.attribute)
        values = onnx.numpy_helper.to_array(weights[node.input[0]]).transpose(order)
        graph.initializer.append(onnx.numpy_helper.from_array(values.copy(), node.output[0]))
        graph.node.remove(node)
    _split_products(model)
    with _silent():
        quantization.quantize_dynamic(
            model, aside, per_channel=True, weight_type=quantization.QuantType.QInt8, op_types_to_quantize=["MatMul"],
        )  # fmt: skip
    os.replace(aside, file)


def _split_products(model: Any) -> None:
    """Write a product with one matrix for each unit as products of its own for each.

    onnxruntime's int8 has a scale for each output of one matrix only.
    """
    onnx = import_module("onnx")
    graph = model.graph
    units = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 3}
    rows: dict[str, list[str]] = {}  # U x N x in -> U of 1 x N x in
    nodes = []
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in units:
            nodes.append(node)
            continue
        values, weight = node.input
        matrices = onnx.numpy_helper.to_array(units[weight])
        if values not in rows:
            rows[values] = [f"{values}.{unit}" for unit in range(len(matrices))]
            nodes.append(onnx.helper.make_node("Split", [values], rows[values], axis=0, num_outputs=len(matrices)))
        products = [f"{node.output[0]}.{unit}" for unit in range(len(matrices))]
        for unit, matrix in enumerate(matrices):
            graph.initializer.append(onnx.numpy_helper.from_array(matrix, f"{weight}.{unit}"))
            nodes.append(onnx.helper.make_node("MatMul", [rows[values][unit], f"{weight}.{unit}"], [products[unit]]))
        nodes.append(onnx.helper.make_node("Concat", products, node.output, axis=0))
    unused = set(units) - {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name not in unused]
    for field, values in ((graph.node, nodes), (graph.initializer, kept)):
        del field[:]
        field.extend(values)


class OnnxGraphs:
    """Graphs in files, run by onnxruntime on the CPU with so many threads."""

    def __init__(self, encoder: str, step: str, *, threads: int) -> None:
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._encoder, self._step = (
            runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in (encoder, step)
        )

    def encode(self, source_tokens: Tensor) -> Sequence[Tensor]:
        """Do what :class:`~fairseq_depthwise.modules.decoding.search_graphs.EncoderGraph` does."""
        return _run(self._encoder, (source_tokens,))

    def step(self, *arguments: Tensor) -> Sequence[Tensor]:
        """Do what :class:`~fairseq_depthwise.modules.decoding.search_graphs.StepGraph` does."""
        return _run(self._step, arguments)


def load(files: Sequence[str]) -> OnnxGraphs:
    """Load encoder and step, with as many threads as PyTorch has."""
    require("onnxruntime")
    for file in files:
        try:
            require_plain_operators(file)
        except (IndexError, ValueError) as error:
            raise UserError(f"{file} is damaged, or not what export writes: {error}") from error
    return OnnxGraphs(*files, threads=torch.get_num_threads())


def _run(session: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    names = [entry.name for entry in session.get_inputs()]
    values = {name: argument.contiguous().numpy() for name, argument in zip(names, arguments, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, values)]


def require(*modules: str) -> None:
    """Raise :class:`UserError` where some of what the extra ``onnx`` brings is not installed; imports none of it."""
    for module in modules or _MODULES:
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{module} is not installed; pip install 'fairseq-depthwise[onnx]'")


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
