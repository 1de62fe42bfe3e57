"""Looks through a file in ONNX before onnxruntime loads it; needs no package.

onnxruntime runs no code in a file, but loops in it that never end, and functions that call themselves. A file is
refused unless its operators are those that `fairseq-depthwise export` writes, none of which has a graph within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def require_plain_operators(path: str | Path) -> None:
    """Raise :class:`ValueError` unless a file has a graph of operators that export writes, and nothing else to run."""
    for field, content in _fields(memoryview(Path(path).read_bytes())):
        if field in _FUNCTIONS:
            raise ValueError("it has functions in it, which export never writes")
        if field == _GRAPH:
            for node in (inner for number, inner in _fields(content) if number == _NODE):
                for number, text in _fields(node):
                    if (number == _OPERATOR and bytes(text).decode() not in OPERATORS) or (number == _DOMAIN and text):
                        raise ValueError(f"it has an operator {bytes(text)[:60]!r} in it, which export never writes")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of each field of a message, as Protocol Buffers have them; a number has no content."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        field, kind = key >> 3, key & 7
        if not 0 < field < 1000 or kind not in (0, 1, 2, 5):
            raise ValueError("it is no file of ONNX")
        size = {0: 0, 1: 8, 5: 4}[kind] if kind != 2 else number()
        if kind == 0:
            number()
        if place + size > len(message):
            raise ValueError("it is cut short")
        yield field, message[place : place + size]
        place += size


#: Numbers of fields: of a model, of its graph, and of a node; functions and training come as graphs of their own.
_GRAPH, _FUNCTIONS = 7, (20, 25)
_NODE = 1
_OPERATOR, _DOMAIN = 4, 7

#: What export writes, in float32 and in int8, and some that compute each element by itself, for other options.
OPERATORS = frozenset({
    "Abs", "Add", "And", "Cast", "Clip", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div",
    "DynamicQuantizeLinear", "Equal", "Erf", "Exp", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Identity", "LayerNormalization", "Less", "LessOrEqual", "Log",
    "LogSoftmax", "MatMul", "MatMulInteger", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range",
    "Reciprocal", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reshape",
    "ScatterElements", "Shape", "Sigmoid", "Sin", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub",
    "Tanh", "Tile", "TopK", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
