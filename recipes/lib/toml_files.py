"""Reads TOML files with every supported Python, and checks them against what their tables may have.

A key that nothing reads is a mistake, since what it was meant to set would keep its default.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fairseq_compat import UserError

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

Table = TypeVar("Table")

#: Names of types in messages.
_TYPES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file; raise UserError if it is not TOML."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error}; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not in TOML: {error}") from error
    return content


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Raise an error of the block that a mistake in a file causes as a UserError with the place of the mistake.

    Args:
        where: the file and the place in it.
    """
    try:
        yield
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"{where} refers to {error}, which is not there") from error
    except RecursionError as error:
        raise UserError(f"{where} refers to itself, directly or through others") from error
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{where} is wrong: {error}") from error


def require_keys(where: str, table: Mapping[str, Any], required: Iterable[str], optional: Iterable[str]) -> None:
    """Raise UserError unless a table has all keys that are required, and others only of the optional ones."""
    known = [*dict.fromkeys([*required, *optional])]
    for key in table:
        if key not in known:
            raise UserError(f"{where} has {key!r}, which nothing reads; there are {', '.join(known)}")
    for key in required:
        if key not in table:
            raise UserError(f"{where} has no {key!r}")


def between(least: float, most: float = math.inf) -> dict[str, tuple[float, float]]:
    """Return the metadata of a dataclass's field whose numbers, including those in lists, have these limits."""
    return {"limits": (least, most)}


def entries(*counts: int) -> dict[str, tuple[int, ...]]:
    """Return the metadata of a dataclass's field whose innermost lists have one of these numbers of entries."""
    return {"entries": counts}


def read_table(kind: type[Table], table: Any, where: str) -> Table:
    """Return a table as an instance of a dataclass that declares what it may have.

    Args:
        kind: dataclass with fields of text, numbers and truth values, of lists and dictionaries of them, and of further
            dataclasses. Fields without a default are required, and their lists have entries.
        table: from the file.
        where: the file and the table's place in it, for messages.

    Raises:
        UserError: a key is missing or unknown, or a value has another type or is beyond its limits.
    """
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r}, and not a table")
    members = fields(kind)  # type: ignore[arg-type]  # a dataclass
    # Fields with neither default nor default_factory.
    required = [member.name for member in members if member.default is member.default_factory is MISSING]
    require_keys(where, table, required, [member.name for member in members])

    types = get_type_hints(kind)
    values = {}
    for member in members:
        if member.name in table:
            limits = member.metadata.get("limits", (-math.inf, math.inf))
            place = f"{where}, {member.name}"
            values[member.name] = _value(types[member.name], table[member.name], place, limits, member.name in required)
            if "entries" in member.metadata:
                _require_entries(values[member.name], member.metadata["entries"], place)
    return kind(**values)


def _require_entries(value: Any, counts: Sequence[int], where: str) -> None:
    """Raise UserError unless the innermost lists of a value have one of these numbers of entries."""
    if isinstance(value, dict):
        for key, item in value.items():
            _require_entries(item, counts, f"{where}.{key}")
    elif value and isinstance(value[0], list):
        for item in value:
            _require_entries(item, counts, where)
    elif len(value) not in counts:
        numbers = " or ".join(map(str, counts))
        raise UserError(f"{where} has {value!r}, with {len(value)} entries, and not {numbers}")


def _value(kind: Any, value: Any, where: str, limits: tuple[float, float], has_entries: bool) -> Any:
    """Return a value as a type; raise UserError if it has another one or is beyond the limits."""
    # "float | None": TOML has no null, so a value that is there has the first type.
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]
    if is_dataclass(kind):
        return read_table(kind, value, where)  # type: ignore[arg-type]  # a class
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise UserError(f"{where} is {value!r}, and not a table")
        inner = get_args(kind)[1]
        return {key: _value(inner, item, f"{where}.{key}", limits, has_entries) for key, item in value.items()}
    if get_origin(kind) is list:
        if not isinstance(value, list) or (has_entries and not value):
            raise UserError(f"{where} is {value!r}, and not a list{' with entries' if has_entries else ''}")
        return [_value(get_args(kind)[0], item, where, limits, has_entries) for item in value]

    # 1 is a number, too.
    if kind is float and type(value) is int:
        value = float(value)
    # Not isinstance(), for which True is an int.
    if type(value) is not kind:
        raise UserError(f"{where} has {value!r}, and not {_TYPES[kind]}")
    if kind in (int, float) and not (limits[0] <= value <= limits[1] and math.isfinite(value)):
        least, most = limits
        span = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
        raise UserError(f"{where} has {value}, and not {_TYPES[kind]} {span}")
    return value
