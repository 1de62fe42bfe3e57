"""Option values that are written as Python, read without being run as Python.

fairseq hands strings such as ``(0.9, 0.98)`` and ``[(512, 3)] * 15`` to ``eval``. Here they are parsed, and what is
not a literal, or a sum, difference or product of literals, is refused. The result is bounded, so that ``[0] * 10**10``
costs nothing either.
"""

from __future__ import annotations

import ast
import operator
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairseq_compat.errors import UserError

#: Longer texts are refused before they are parsed: Python's own parser needs stack in proportion to what is nested.
LONGEST_TEXT = 100_000

#: Numbers and characters in a value, counted as often as they are repeated.
LARGEST_VALUE = 100_000

_NUMBERS = (int, float, complex)
_SEQUENCES = (str, bytes, tuple, list)
_CONSTANTS = (*_NUMBERS, str, bytes, type(None))  # bool is an int
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class _NotLiteralError(Exception):
    """Its text is what the value has that a literal has not."""


def evaluate(text: str) -> Any:
    """Return the value of a literal, or of sums, differences and products of literals.

    Args:
        text: numbers, strings, ``True``, ``False``, ``None``, and tuples, lists, sets and dictionaries of them, with
            ``+``, ``-`` and ``*`` between them.

    Raises:
        UserError: it is anything else, or too large.
        TypeError: it is no string, as of ``eval``.
    """
    if not isinstance(text, str):
        raise TypeError(f"evaluate() needs a string, not {type(text).__name__}")
    try:
        if len(text) > LONGEST_TEXT:
            raise _NotLiteralError(f"it is longer than {LONGEST_TEXT:,} characters")
        return _value(ast.parse(text.lstrip(" \t"), mode="eval").body)[0]
    except _NotLiteralError as error:
        reason = str(error)
    except (SyntaxError, ValueError) as error:  # a ValueError is of a null byte, or a number of too many digits
        reason = str(error).partition(" (<unknown>")[0]
    except (TypeError, ArithmeticError) as error:  # 'a' * 'b', {[]: 1}, 1e308 * 10 of integers
        reason = str(error)
    except (RecursionError, MemoryError):
        reason = "it is nested too deeply"
    name = next(_options_of(text), None)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    raise UserError(
        f"{f'option {name}' if name else 'an option'} has the value {shown!r}, which is not a literal ({reason}); "
        "what is right are numbers, strings, True, False and None, in tuples, lists or dictionaries"
    )


def _value(node: ast.expr) -> tuple[Any, int]:
    """Return the value of a node and its size, in numbers and characters."""
    if isinstance(node, ast.Constant) and isinstance(node.value, _CONSTANTS):
        return node.value, _size(node.value)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
        parts = [_value(part) for part in node.elts]
        return kind(part for part, _ in parts), 1 + sum(size for _, size in parts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        parts = [_value(part) for part in (*node.keys, *node.values) if part is not None]
        values = [part for part, _ in parts]
        count = len(node.keys)
        return dict(zip(values[:count], values[count:], strict=True)), 1 + sum(size for _, size in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value, size = _value(node.operand)
        if isinstance(value, _NUMBERS):
            return (-value if isinstance(node.op, ast.USub) else +value), size
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        (left, left_size), (right, right_size) = _value(node.left), _value(node.right)
        size = left_size + right_size
        for sequence, length, times in ((left, left_size, right), (right, right_size, left)):
            if isinstance(node.op, ast.Mult) and isinstance(sequence, _SEQUENCES) and isinstance(times, int):
                size = length * max(1, times)
        if size > LARGEST_VALUE:
            raise _NotLiteralError(f"it has more than {LARGEST_VALUE:,} parts")
        return _OPERATORS[type(node.op)](left, right), size
    raise _NotLiteralError(f"it has {_description(node)}")


def _size(constant: Any) -> int:
    if isinstance(constant, (str, bytes)):
        return 1 + len(constant)
    return 1 + constant.bit_length() // 64 if isinstance(constant, int) else 1


def _description(node: ast.AST) -> str:
    """Return what a node is called in an error."""
    if isinstance(node, ast.Call):
        return f"a call of {ast.unparse(node.func)[:40]}"
    if isinstance(node, ast.Name):
        return f"the name {node.id[:40]}"
    operation = getattr(node, "op", node)
    return f"the Python expression {type(operation).__name__}"


def _options_of(text: str) -> Iterator[str]:
    """Yield names of options that have this value, in the functions that are running, for an error."""
    frame = sys._getframe(1)
    while frame is not None:
        names = frame.f_locals
        for options in (names.get("args"), names.get("cfg"), *_own_options(names.get("self"))):
            values = options if isinstance(options, Mapping) else getattr(options, "__dict__", None)
            if values is not None:
                yield from _names_in(values, text)
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost


def _own_options(owner: Any) -> tuple[Any, ...]:
    return tuple(vars(owner).get(name) for name in ("args", "cfg")) if hasattr(owner, "__dict__") else ()


def _names_in(values: Mapping[Any, Any], text: str, depth: int = 3) -> Iterator[str]:
    for name in values:
        try:
            value = values[name]
        except Exception:  # an interpolation of omegaconf that leads nowhere
            continue
        if isinstance(value, str) and value == text:
            yield str(name)
        elif depth and isinstance(value, (Mapping, Namespace)):
            yield from _names_in(vars(value) if isinstance(value, Namespace) else value, text, depth - 1)
