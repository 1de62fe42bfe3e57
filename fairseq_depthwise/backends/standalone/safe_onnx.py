"""Checks an ONNX file before onnxruntime loads it; needs no other package.

onnxruntime runs no code from a file, but it runs endless loops and functions that call themselves, and dividing the
smallest integer by -1 ends the process. So a file is refused unless it has only operators that `fairseq-depthwise
export` writes, none of which contains a graph, and divides only by constants, integers only by positive ones; and
unless it contains all of its constants, since no digest covers those in other files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def require_plain_operators(path: str | Path) -> None:
    """Raise :class:`ValueError` unless a file has a graph of operators that export writes, and nothing else to run."""
    # Names of divisors; and names of constants, by whether dividing by them is safe.
    divisors: set[bytes] = set()
    constants: dict[bool, set[bytes]] = {True: set(), False: set()}
    for field, content in _fields(memoryview(Path(path).read_bytes())):
        if field in _FUNCTIONS:
            raise ValueError("it has functions in it, which export never writes")
        if field != _GRAPH:
            continue
        # 1. Operators and constants of the graph.
        for number, inner in _fields(content):
            if number == _CONSTANT:
                tensor = {place: bytes(value) for place, value in _fields(inner)}
                # Location 0 is DEFAULT: the values are in this file.
                if tensor.get(_LOCATION, _IN_IT) != _IN_IT:
                    raise ValueError("it has a constant in another file, which export never writes")
                constants[_may_divide(tensor)].add(tensor.get(_NAME, b""))
            elif number == _NODE:
                # Pairs rather than a dictionary, because a node has several inputs.
                parts = [(place, bytes(text)) for place, text in _fields(inner)]
                for place, text in parts:
                    if (place == _OPERATOR and text.decode() not in OPERATORS) or (place == _DOMAIN and text):
                        raise ValueError(f"it has an operator {text[:60]!r} in it, which export never writes")
                # The second input of a division is its divisor.
                if {(_OPERATOR, b"Div"), (_OPERATOR, b"Mod")}.intersection(parts):
                    divisors.update([text for place, text in parts if place == _INPUT][1:])
    # 2. Every divisor must name a safe constant, and no unsafe one of the same name.
    if not divisors <= constants[True] - constants[False]:
        raise ValueError("it divides by something else than positive constants, which export never does")


def _may_divide(tensor: dict[int, bytes]) -> bool:
    # Dividing by any float is harmless. An integer must be a single, positive int64.
    value = int.from_bytes(tensor.get(_BYTES, b"")[:8], "little", signed=True)
    is_integer = tensor.get(_TYPE) == b"\7" and len(tensor.get(_BYTES, b"")) == 8
    return tensor.get(_TYPE) == b"\1" or (is_integer and value > 0)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of each field of a message of Protocol Buffers."""
    place = 0

    def number() -> int:
        nonlocal place
        value = 0
        # 7 bits per byte, lowest first; the eighth says whether another byte follows. 64 bits take up to 10 bytes.
        for shift in range(0, 70, 7):
            byte = message[place]
            place, value = place + 1, value | (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("it is no file of ONNX")

    while place < len(message):
        # A field's number, and in the lowest three bits its size: 0 a varint, 1 eight bytes, 2 as many bytes as the
        # number that follows says, 5 four bytes. 3 and 4 are groups, which nobody writes any more.
        key = number()
        field, kind = key >> 3, key & 7
        if not 0 < field < 1000 or kind not in (0, 1, 2, 5):
            raise ValueError("it is no file of ONNX")
        size = {0: 0, 1: 8, 5: 4}[kind] if kind != 2 else number()
        begin = place
        if kind == 0:
            number()
        place += size
        if place > len(message):
            raise ValueError("it is cut short")
        yield field, message[begin:place]


#: Numbers of fields: of a model, its graph, a node, and a constant, whose type is 1 (float32) or 7 (int64). Functions
#: and training have graphs of their own.
_GRAPH, _FUNCTIONS = 7, (20, 25)
_NODE, _CONSTANT = 1, 5
_INPUT, _OPERATOR, _DOMAIN = 1, 4, 7
_TYPE, _NAME, _BYTES, _LOCATION, _IN_IT = 2, 8, 9, 14, b"\0"

#: The operators that export writes, in float32 and int8, and some element-wise ones for other options.
OPERATORS = frozenset({
    "Abs", "Add", "And", "Cast", "Clip", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div",
    "DynamicQuantizeLinear", "Equal", "Erf", "Exp", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Identity", "LayerNormalization", "Less", "LessOrEqual", "Log",
    "LogSoftmax", "MatMul", "MatMulInteger", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range",
    "Reciprocal", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reshape",
    "ScatterElements", "Shape", "Sigmoid", "Sin", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub",
    "Tanh", "Tile", "TopK", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
