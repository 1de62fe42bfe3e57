"""Options of commands as fields of dataclasses: each is declared once, with its help, and read into an object.

Nothing here imports PyTorch, so ``--help`` does not wait for it.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields
from typing import Any, TypeVar

from fairseq_compat import UserError
from fairseq_compat.versions import problem_of_extra

Options = TypeVar("Options")

#: The stacks of a model.
SIDES = ("encoder", "decoder")


def between(least: float, most: float, kind: type = float) -> Callable[[str], Any]:
    """Return a function that converts an option's text to a number within a range."""

    def convert(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan  # which is in no range
        if not least <= number <= most:
            kind_of_number = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind_of_number} from {least} to {most}")
        return number

    return convert


positive_int = between(1, 2**31 - 1, int)


def option(default: Any, help: Any, *, flag: str = "", changes_result: bool = True, **of_argparse: Any) -> Any:
    """Return a field of a dataclass that is an option.

    Args:
        default: of the field; with False the option takes no value.
        help: of the option; or, for a choice with one option for each value, value -> help.
        flag: the option's name, if it is not the field's.
        changes_result: whether it affects what a command writes.
        of_argparse: more for argparse, such as ``choices``; a number's ``type`` is :data:`positive_int` by default.
    """
    metadata = {"help": help, "flag": flag, "changes_result": changes_result, "of_argparse": of_argparse}
    return field(default=default, metadata=metadata)


class CheckedOptions:
    """A dataclass of options that accepts only values which the command line would accept, in programs as well."""

    def __post_init__(self) -> None:
        dataclass: Any = self
        for option_field in fields(dataclass):
            value = getattr(self, option_field.name)
            if value == option_field.default or not option_field.metadata:
                continue
            if _is_switch(option_field) and not isinstance(value, bool):
                raise UserError(f"{_flag(option_field)} {value!r} is neither True nor False")
            choices = _choices(option_field)
            if choices is not None and value not in choices:
                known = ", ".join(map(str, choices))
                raise UserError(f"{_flag(option_field)} {value!r} is not known; it must be one of {known}")
            convert = _converter(option_field)
            if convert is not None:
                if isinstance(value, str):  # the command line converts it
                    raise UserError(f"{_flag(option_field)} {value!r} is a text; give a number")
                try:
                    convert(str(value))
                except argparse.ArgumentTypeError as error:
                    raise UserError(f"{_flag(option_field)} {error}") from None


def similar_option(word: str, known: Iterable[str]) -> str | None:
    """Return the known option that a misspelled one, perhaps with ``=`` and a value, is spelled like; or None."""
    similar = difflib.get_close_matches(word.partition("=")[0], list(known), n=1)
    return similar[0] if similar else None


def require_extra(extra: str, *modules: str) -> None:
    """Raise UserError if one of the modules of an extra of the installation is missing or too old."""
    problem = problem_of_extra(extra, *modules)
    if problem is not None:
        raise UserError(problem)


def add_options(parser: argparse.ArgumentParser, dataclass: Any, *, without: Sequence[str] = ()) -> None:
    """Add the options of a dataclass, and of dataclasses within it, each in a group with the name ``TITLE``."""
    group: Any = parser.add_argument_group(dataclass.TITLE) if hasattr(dataclass, "TITLE") else parser
    for option_field in fields(dataclass):
        inner = _inner_dataclass(option_field)
        if inner is not None:
            add_options(parser, inner, without=without)
        elif option_field.metadata and option_field.name not in without:
            _add_option(group, option_field)


def _add_option(group: Any, option_field: Any) -> None:
    default = option_field.default
    help = option_field.metadata["help"]
    arguments: dict[str, Any] = {
        "dest": option_field.name,
        "default": default,
        **option_field.metadata["of_argparse"],
    }
    if isinstance(help, dict):
        # One option for each value.
        exclusive = group.add_mutually_exclusive_group()
        for value, help_of_value in help.items():
            exclusive.add_argument(f"--{value}", action="store_const", const=value, help=help_of_value, **arguments)
        return

    convert = _converter(option_field)
    if default is False and "nargs" not in arguments:
        arguments["action"] = "store_true"
    elif convert is not None:
        arguments = {"type": convert, "metavar": "N", **arguments}
    if default not in (None, False):
        help += " (default: %(default)s)"
    group.add_argument(_flag(option_field), help=help, **arguments)


def options_of(dataclass: type[Options], namespace: argparse.Namespace) -> Options:
    """Return a dataclass with the values of a command line; fields that the command has no option for are default."""
    values = {}
    for option_field in fields(dataclass):  # type: ignore[arg-type]  # a dataclass
        inner = _inner_dataclass(option_field)
        if inner is not None:
            values[option_field.name] = options_of(inner, namespace)
        elif hasattr(namespace, option_field.name):
            values[option_field.name] = getattr(namespace, option_field.name)
    return dataclass(**values)


def that_change_results(options: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each option of a dataclass that affects what a command writes."""
    for option_field in fields(options):
        value = getattr(options, option_field.name)
        if _inner_dataclass(option_field) is not None:
            yield from that_change_results(value)
        elif option_field.metadata.get("changes_result"):
            yield _flag(option_field), value


def _inner_dataclass(option_field: Any) -> Any:
    """Return the dataclass that a field has as its value, or None."""
    factory = option_field.default_factory
    return factory if hasattr(factory, "__dataclass_fields__") else None


def _choices(option_field: Any) -> Sequence[Any] | None:
    """Return the values that an option may have; None for options without a list of values."""
    help = option_field.metadata["help"]
    if isinstance(help, dict):
        return [option_field.default, *help]
    choices: Sequence[Any] | None = option_field.metadata["of_argparse"].get("choices")
    return choices


def _converter(option_field: Any) -> Callable[[str], Any] | None:
    """Return what converts an option's text to a number, or None for options that are no numbers."""
    default = option_field.default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    converter: Callable[[str], Any] | None = option_field.metadata["of_argparse"].get("type")
    return positive_int if converter is None and is_number else converter


def _is_switch(option_field: Any) -> bool:
    """Return whether an option takes no value."""
    action = option_field.metadata["of_argparse"].get("action")
    return isinstance(option_field.default, bool) or action is argparse.BooleanOptionalAction


def _flag(option_field: Any) -> str:
    return str(option_field.metadata["flag"] or f"--{option_field.name.replace('_', '-')}")
