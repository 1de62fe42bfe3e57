"""Graphs as ONNX files: written from traced graphs, optionally in int8, and run by onnxruntime."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.export import ExportedProgram

from fairseq_compat import UserError
from fairseq_depthwise.backends.graph_cache import cached_folder
from fairseq_depthwise.backends.graph_search import Graphs
from fairseq_depthwise.backends.standalone.safe_onnx import require_plain_operators
from fairseq_depthwise.backends.traced import GRAPHS, graph_tensors, require_equal, trace
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.options import require_extra

#: The version of ONNX's operators. onnxruntime 1.17 and newer has it.
OPSET = 20


def make_graphs(models: Sequence[StackModel], path: str, say: Callable[[str], None], *, anew: bool = True) -> Graphs:
    """Return the graphs of models with matrix products in int8, from the cache or made now."""
    require_extra("onnx", "onnx", "onnxscript", "onnxruntime")

    def make(folder: Path) -> None:
        if not anew:
            raise UserError(f"{path} has not been quantized")
        say(f"quantizing {path}; this takes ten seconds or more, and is kept")
        write_graphs(models, path, str(folder), int8=True)

    # Another version of onnxruntime may quantize differently.
    folder = cached_folder("int8", models, metadata.version("onnxruntime"), make, say)
    return load([str(folder / f"{name}.onnx") for name in GRAPHS])


def write_graphs(models: Sequence[StackModel], path: str, folder: str, *, int8: bool = False) -> dict[str, Any]:
    """Write both graphs of models into a folder, load them from there, and compare them with the models.

    With ``int8``, matrix products are in int8.

    Returns:
        for each graph its file, and its tensors as :func:`graph_tensors` describes them.
    """
    functions = {}
    for name, tensors in graph_tensors(models).items():
        functions[name] = {"file": f"{name}.onnx", **tensors}
    files = [os.path.join(folder, function["file"]) for function in functions.values()]
    # In float32 first, which must compute what the models compute.
    for program, file, function in zip(trace(models, in_place=False), files, functions.values(), strict=True):
        _write(program, file, function)
    require_equal(load(files), models, path)
    if int8:
        for file in files:
            _quantize(file)
        # The user decides how far int8 may be from float32; but it has to run, and return probabilities.
        require_equal(load(files), models, path, tolerance=1.0)
    return functions


def _write(program: ExportedProgram, file: str, about: Mapping[str, Any]) -> None:
    """Write a graph, whose inputs and outputs ``about`` names, and check it with :mod:`onnx`."""
    onnx = import_module("onnx")
    inputs, outputs = ([tensor["name"] for tensor in about[side]] for side in ("inputs", "outputs"))
    # All operators traced here but one exist in ONNX; decomposing them would mean tracing once more.
    if all(node.target is not torch.ops.aten.rms_norm.default for node in program.graph.nodes):
        program.run_decompositions = lambda table: program
    # Operands always have equal types; the pass that looks for unequal ones would run the graph once more.
    promotion = import_module("torch.onnx._internal.exporter._fx_passes")
    with _silent(), mock.patch.object(promotion, "insert_type_promotion_nodes", create=True):
        optimizer, passes = import_module("onnxscript.optimizer"), import_module("onnx_ir.passes.common")
        written = torch.onnx.export(
            program, dynamo=True, input_names=inputs, output_names=outputs, opset_version=OPSET, optimize=False
        )
        assert written is not None
        # optimize=True would also try rules that none of these graphs needs.
        optimizer.inline(written.model)
        optimizer.fold_constants(written.model, onnx_shape_inference=True)
        passes.RemoveUnusedNodesPass()(written.model)
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(written.model)
        passes.DeduplicateInitializersPass()(written.model)
        passes.CommonSubexpressionEliminationPass()(written.model)
        passes.RemoveUnusedOpsetsPass()(written.model)
    written.model.producer_name = "fairseq-depthwise"
    written.save(file)
    onnx.checker.check_model(file, full_check=True)


def _quantize(file: str) -> None:
    """Convert weights of matrix products to int8, with one scale per output; inputs are quantized at run time."""
    quantization, onnx = import_module("onnxruntime.quantization"), import_module("onnx")
    # Not over the file itself, which would be lost if this failed halfway.
    aside = f"{file}.int8"
    model = onnx.load(file)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    # onnxruntime quantizes only constants, not the output of a Transpose, so transposed weights become constants.
    transposes = [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]
    for node in transposes:
        # Such as the table that embedding and output projection share. perm is the only attribute of a Transpose.
        (order,) = (list(attribute.ints) for attribute in node.attribute)
        values = onnx.numpy_helper.to_array(weights[node.input[0]]).transpose(order)
        graph.initializer.append(onnx.numpy_helper.from_array(values.copy(), node.output[0]))
        graph.node.remove(node)
    _split_products(model)
    with _silent():
        quantization.quantize_dynamic(
            model,
            aside,
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=["MatMul"],
        )
    os.replace(aside, file)


def _split_products(model: Any) -> None:
    """Split each product with one matrix per unit into a product for each unit.

    onnxruntime's int8 has a scale per output for single matrices only.
    """
    onnx = import_module("onnx")
    graph = model.graph
    nodes: list[Any] = []
    # U x in x out
    matrices = [tensor for tensor in graph.initializer if len(tensor.dims) == 3]
    units = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in matrices}
    rows: dict[str, list[str]] = {}  # U x N x in -> U of 1 x N x in
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in units:
            nodes.append(node)
            continue
        # U x N x in, and the name of its weights
        values, weight = node.input
        count = len(units[weight])
        # Several products may read the same values, such as those for keys and values: split them once.
        if values not in rows:
            rows[values] = [f"{values}.{unit}" for unit in range(count)]
            nodes.append(onnx.helper.make_node("Split", [values], rows[values], axis=0, num_outputs=count))
        products = [f"{node.output[0]}.{unit}" for unit in range(count)]
        for unit, matrix in enumerate(units[weight]):
            matrix_name = f"{weight}.{unit}"
            graph.initializer.append(onnx.numpy_helper.from_array(matrix, matrix_name))
            nodes.append(onnx.helper.make_node("MatMul", [rows[values][unit], matrix_name], [products[unit]]))
        # Join U tensors of 1 x N x out to U x N x out, under the name that later nodes read.
        nodes.append(onnx.helper.make_node("Concat", products, node.output, axis=0))

    # Drop the joined matrices unless something else reads them.
    used: set[str] = set()
    for node in nodes:
        used.update(node.input)
    initializers = [tensor for tensor in graph.initializer if tensor.name not in units or tensor.name in used]
    # Repeated fields of protobuf cannot be assigned, only cleared and extended.
    for field, entries in ((graph.node, nodes), (graph.initializer, initializers)):
        del field[:]
        field.extend(entries)


def load(files: Sequence[str]) -> Graphs:
    """Load encoder and step, to run on the CPU with as many threads as PyTorch has."""
    require_extra("onnx", "onnxruntime")
    return Graphs(*map(_loaded, files))


def _loaded(file: str) -> Callable[..., list[Tensor]]:
    try:
        require_plain_operators(file)
    except (IndexError, ValueError) as error:
        raise UserError(f"{file} is damaged, or not what export writes: {error}") from error
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    # These threads share a product; nodes run one after another.
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    # Otherwise int8 products overflow on CPUs with AVX2 or AVX-512 but without VNNI, and translations are wrong.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    # onnxruntime takes inputs by name; the search passes them in order.
    names = [entry.name for entry in session.get_inputs()]

    def graph(*arguments: Tensor) -> list[Tensor]:
        values = {name: argument.contiguous().numpy() for name, argument in zip(names, arguments, strict=True)}
        return [torch.from_numpy(array) for array in session.run(None, values)]

    return graph


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Silence the exporters' progress messages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
