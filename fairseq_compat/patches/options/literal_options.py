"""fairseq evaluates option values as Python, those that a checkpoint records among them, and so runs code from a file.

Every module of fairseq that mentions ``eval`` gets :func:`fairseq_compat.literals.evaluate` under that name, and in the
place of ``ast.literal_eval``, whose errors name no option. Values that fairseq's options are documented with, such as
``[(512, 3)] * 15``, are what they were.
"""

import ast
from collections.abc import Iterator
from typing import Any

from fairseq_compat.literals import evaluate
from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    module.eval = evaluate
    yield
    if getattr(module, "ast", None) is ast:
        module.ast = Overlay(ast, literal_eval=evaluate)
    if getattr(module, "literal_eval", None) is ast.literal_eval:
        module.literal_eval = evaluate
