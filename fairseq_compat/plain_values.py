"""Checks that values from a stranger's file are plain: texts that stand for themselves, numbers, containers of these.

omegaconf replaces ``${...}`` in options, and fairseq downloads what has an address in a network: such texts are
refused.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

#: At most so many values in a file; one that the file stores once counts as often as it is referred to.
_MOST_VALUES = 2**20

#: Containers within containers.
_DEEPEST = 50

#: A URL of any scheme, except those of torch.distributed, where processes find each other (tcp, env, file), that of
#: logging in hydra's configuration (ext), and the address from which fairseq downloads its own models.
_ADDRESS = re.compile(
    r"""\s*
    (?! (tcp|env|file|ext)://
      | https://dl\.fbaipublicfiles\.com/fairseq/ (?!.*(\.\.|%))   # ".." and "%2e" would lead out of that folder
    )
    [a-z][\w+.-]*://""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


class RefusedError(ValueError):
    """A file has something that is not read; the message continues the sentence "FILE is refused: "."""


def require_plain(value: Any, *, most: int = _MOST_VALUES) -> None:
    """Refuse texts that would be looked up elsewhere, functions and classes, and more than ``most`` values.

    Raises:
        RefusedError: one of these is in the value, or containers are nested too deeply.
    """
    for option, text in _texts(value, most):
        if "${" in text:
            raise RefusedError(
                f"its option {option[:60]!r} is {text[:60]!r}, which omegaconf would look up; give a plain value"
            )
        if _ADDRESS.match(text):
            raise RefusedError(f"its option {option[:60]!r} is {text[:60]!r}; only files on this machine can be read")


def _texts(value: Any, most: int) -> Iterator[tuple[str, str]]:
    """Yield every text in a value once, also keys and texts in JSON, each with the key that it belongs to.

    Raises:
        RefusedError: there are functions, classes, more than ``most`` values, or they are nested too deeply.
    """
    # A list instead of recursion, which a deeply nested value would end in a RecursionError.
    waiting = [("", value, 0)]
    count = 0
    texts = set()
    while waiting:
        key, current, depth = waiting.pop()
        if isinstance(current, str):
            if current in texts:  # a pickle may refer to one long text a million times
                continue
            texts.add(current)
            yield key, current
            # Linearized models keep the options of the probed model as JSON.
            if current.lstrip().startswith("{"):
                with suppress(ValueError, RecursionError):
                    waiting.append((key, json.loads(current), depth + 1))
        elif isinstance(current, (dict, Namespace, list, tuple)):
            entries = _entries(key, current)
            count += len(entries)
            if count > most or depth > _DEEPEST:
                raise RefusedError(f"it has more than {most:,} values, or values nested more than {_DEEPEST} deep")
            waiting += [(name, entry, depth + 1) for name, entry in entries]
        elif callable(current):
            raise RefusedError("it names a function or a class as a value")


def _entries(key: str, container: Any) -> list[tuple[str, Any]]:
    """Return the entries of a container, each with its key; those of a list have the ``key`` of the list."""
    if isinstance(container, (list, tuple)):
        return [(key, entry) for entry in container]
    entries = []
    for name, entry in (container if isinstance(container, dict) else vars(container)).items():
        entries += [(str(name), name), (str(name), entry)]  # the name itself may be a text that is refused
    return entries
