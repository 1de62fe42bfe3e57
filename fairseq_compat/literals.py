"""Option values that are written as Python, read without being run as Python.

fairseq passes strings such as ``(0.9, 0.98)`` and ``[(512, 3)] * 15`` to ``eval``. Here they are parsed. Everything but
literals and their sums, differences and products is refused. The result is bounded, so that ``[0] * 10**10`` fills no
memory.
"""

from __future__ import annotations

import argparse
import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from fairseq_compat.errors import UserError

#: Characters at most: of a text, as Python's parser needs a stack in proportion to its depth, and of a computed value.
LONGEST = 100_000

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_SEQUENCES = (str, bytes, tuple, list)
_LITERALS = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict)
_NODES = (*_LITERALS, ast.UnaryOp, ast.BinOp, ast.USub, ast.UAdd, *_OPERATORS, ast.Load)


class LiteralError(UserError, argparse.ArgumentTypeError):
    """A text that is not a literal; argparse prints its message after the name of the option."""


def evaluate(text: str) -> Any:
    """Return the value of a literal, or of sums, differences and products of literals.

    Raises:
        LiteralError: it is anything else, or too large.
        TypeError: it is no string, as with ``eval``.
    """
    if not isinstance(text, str):
        raise TypeError(f"evaluate() needs a string, not {type(text).__name__}")
    try:
        if len(text) > LONGEST:
            raise ValueError(f"it is longer than {LONGEST:,} characters")
        expression = ast.parse(text.lstrip(" \t"), mode="eval").body
        for node in ast.walk(expression):
            is_ellipsis = isinstance(node, ast.Constant) and node.value is ...
            if is_ellipsis or not isinstance(node, _NODES):
                raise ValueError(f"it has the Python expression {ast.unparse(node)[:40]}")
        return ast.literal_eval(_Arithmetic().visit(expression))
    except (SyntaxError, ValueError, TypeError, ArithmeticError) as error:  # 'a' * 'b', {[]: 1}, a null byte
        reason = re.split(r" \(<unknown>|: <ast", str(error))[0]  # where in the parser's source
    except (RecursionError, MemoryError):
        reason = "it is nested too deeply"
    raise LiteralError(f"an option has the value {text[:80]!r}, which is not a literal: {reason}")


def dictionary(option: str, text: str) -> dict[str, Any]:
    """Return the dictionary that an option is given as Python.

    Raises:
        UserError: it is anything else, or has keys that are no names.
    """
    try:
        value = evaluate(text)
    except UserError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise UserError(f"{option} {text!r} is no dictionary of Python with names; write it as {{'dropout': 0.0}}")
    return value


class _Arithmetic(ast.NodeTransformer):
    """Replaces sums, differences and products of literals by their values, whose total length is bounded."""

    room = LONGEST

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        first, second = ast.literal_eval(node.left), ast.literal_eval(node.right)
        size = len(repr(first)) + len(repr(second))
        # A product of a sequence and a number is that many times as long.
        for sequence, times in ((first, second), (second, first)):
            if isinstance(node.op, ast.Mult) and isinstance(sequence, _SEQUENCES) and isinstance(times, int):
                size = len(repr(sequence)) * max(1, times)
        self.room -= size
        if self.room < 0:
            raise ValueError(f"it has more than {LONGEST:,} characters")
        return ast.parse(repr(_OPERATORS[type(node.op)](first, second)), mode="eval").body
