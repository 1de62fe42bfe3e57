"""Graphs as ONNX files: written from traced ones, optionally in int8, and run by onnxruntime."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_compat.errors import UserError, first_line
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.kept_graphs import kept_folder
from fairseq_depthwise.serving.traced_graphs import TracedGraphs, graph_files, require_equal, trace

#: The version of ONNX's operators. onnxruntime 1.17 and newer has it.
OPSET = 20

#: What the extra ``onnx`` brings.
_MODULES = ("onnx", "onnxscript", "onnxruntime")

#: What a file's metadata is read by.
PRODUCER = "fairseq-depthwise"


def int8_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None]) -> Graphs:
    """Return the graphs of models with matrix products in int8, made now unless they have been before.

    Args:
        models: on the CPU, in evaluation mode, after fairseq's ``prepare_for_inference_``.
        path: their checkpoints, for messages.
        say: called with what takes long.

    Raises:
        UserError: onnxruntime is not installed, or they cannot be traced.
    """
    require_onnx()
    functions = graph_files(models, ".onnx")

    def make(folder: Path) -> None:
        say(f"quantizing {path}; this takes half a minute or more, and is kept")
        files = {name: str(folder / about["file"]) for name, about in functions.items()}
        write_onnx_files(trace(models, path, in_place=False), models, path, files, functions, int8=True)

    with kept_folder("int8", models, require("onnxruntime").__version__, make, say) as folder:
        paths = [str(folder / about["file"]) for about in functions.values()]
        return OnnxGraphs(*paths, threads=torch.get_num_threads())


def write_onnx_files(
    graphs: TracedGraphs, models: Sequence[StackModel], path: str, files: Mapping[str, str],
    about: Mapping[str, Any], *, int8: bool,
) -> None:  # fmt: skip
    """Write both graphs, checked by :mod:`onnx` and compared with the models.

    Args:
        graphs: of the models, not in place.
        models: on the CPU, in evaluation mode.
        path: their checkpoints, for messages.
        files: of the encoder and the step, by their names.
        about: of :func:`graph_files`.
        int8: let matrix products compute in int8.

    Raises:
        UserError: onnx cannot express or refuses a graph, or a probability differs.
    """
    _write(graphs, files, about)
    threads = torch.get_num_threads()
    require_equal(OnnxGraphs(*files.values(), threads=threads), models, path)
    if int8:
        for file in files.values():
            _quantize(file)
        # How far int8 may be from float32 is the user's to say; but it has to run, and to give probabilities.
        require_equal(OnnxGraphs(*files.values(), threads=threads), models, path, tolerance=1.0)


def _write(graphs: TracedGraphs, files: Mapping[str, str], about: Mapping[str, Any]) -> None:
    onnx = require("onnx")
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


def _quantize(file: str) -> None:
    """Replace the weights of matrix products by int8, one scale for each output; inputs are quantized while it runs."""
    quantization, onnx, aside = require("onnxruntime.quantization"), require("onnx"), f"{file}.int8"
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
    onnx = require("onnx")
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


def require_onnx() -> None:
    """Raise :class:`UserError` where what the extra ``onnx`` brings is not installed; imports none of it."""
    for module in _MODULES:
        if importlib.util.find_spec(module) is None:
            raise _missing(module)


def require(module: str) -> Any:
    """Return a module that the extra ``onnx`` brings.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module) from error


def _missing(module: str) -> UserError:
    return UserError(f"{module} is not installed; pip install 'fairseq-depthwise[onnx]'")


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
