"""Options of commands as fields of dataclasses: each is declared once, with its help, and read into an object.

Nothing here imports torch, so that ``--help`` is there at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields
from typing import Any, TypeVar

from fairseq_compat import UserError
from fairseq_compat.versions import problem_of_extra

Options = TypeVar("Options")


def between(least: float, most: float, kind: type = float) -> Callable[[str], Any]:
    """Return what converts an option's value to a number of a range."""

    def convert(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            whole = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {whole} from {least} to {most}")
        return number

    return convert


positive_int = between(1, 2**31 - 1, int)


def option(default: Any, help: Any, *, flag: str = "", changes_result: bool = True, **of_argparse: Any) -> Any:
    """Return a field of a dataclass that is an option.

    Args:
        default: of the field; with False the option takes no value.
        help: of the option; or, for one option for each value, the help of each.
        flag: what the option is called, if not as the field.
        changes_result: whether what a command writes depends on it.
        of_argparse: more for argparse, such as ``choices``; a number's ``type`` is :data:`positive_int` if not given.
    """
    about = {"help": help, "flag": flag, "changes_result": changes_result, "of_argparse": of_argparse}
    return field(default=default, metadata=about)


class CheckedOptions:
    """A dataclass of options that takes, also in programs, only those values that the command line would take."""

    def __post_init__(self) -> None:
        declared: Any = self
        for one in fields(declared):
            value = getattr(self, one.name)
            if value == one.default or not one.metadata:
                continue
            if (choices := _choices(one)) is not None and value not in choices:
                known = ", ".join(map(str, choices))
                raise UserError(f"{_flag(one)} {value!r} is not known; it must be one of {known}")
            if (convert := _converter(one)) is not None:
                try:
                    convert(str(value))
                except argparse.ArgumentTypeError as error:
                    raise UserError(f"{_flag(one)} {error}") from None


def require_extra(extra: str, *modules: str) -> None:
    """Refuse what needs an extra of the installation where one of its modules is missing or too old."""
    if (problem := problem_of_extra(extra, *modules)) is not None:
        raise UserError(problem)


def add_options(parser: argparse.ArgumentParser, declared: Any, *, without: Sequence[str] = ()) -> None:
    """Add the options of a dataclass, and of those within it, each in a group that its ``TITLE`` names."""
    group: Any = parser.add_argument_group(declared.TITLE) if hasattr(declared, "TITLE") else parser
    for one in fields(declared):
        if (inner := _within(one)) is not None:
            add_options(parser, inner, without=without)
        elif one.metadata and one.name not in without:
            about, default = one.metadata, one.default
            given: dict[str, Any] = {"dest": one.name, "default": default, **about["of_argparse"]}
            if isinstance(about["help"], dict):
                exclusive = group.add_mutually_exclusive_group()
                for value, help in about["help"].items():
                    exclusive.add_argument(f"--{value}", action="store_const", const=value, help=help, **given)
                continue
            if default is False and "nargs" not in given:
                given["action"] = "store_true"
            elif (convert := _converter(one)) is not None:
                given = {"type": convert, "metavar": "N", **given}
            shown = "" if default in (None, False) else " (default: %(default)s)"
            group.add_argument(_flag(one), help=about["help"] + shown, **given)


def options_of(declared: type[Options], given: argparse.Namespace) -> Options:
    """Return a dataclass with the values of a command line; what is no option of the command has its default."""
    values = {}
    for one in fields(declared):  # type: ignore[arg-type]  # a dataclass
        if (inner := _within(one)) is not None:
            values[one.name] = options_of(inner, given)
        elif hasattr(given, one.name):
            values[one.name] = getattr(given, one.name)
    return declared(**values)


def that_change_results(options: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of those options in a dataclass that what is written depends on."""
    for one in fields(options):
        value = getattr(options, one.name)
        if _within(one) is not None:
            yield from that_change_results(value)
        elif one.metadata.get("changes_result"):
            yield _flag(one), value


def _within(one: Any) -> Any:
    """Return the dataclass that a field holds, or None."""
    return one.default_factory if hasattr(one.default_factory, "__dataclass_fields__") else None


def _choices(one: Any) -> Sequence[Any] | None:
    """Return the values that an option may have; None where it has no such list."""
    about = one.metadata
    return [one.default, *about["help"]] if isinstance(about["help"], dict) else about["of_argparse"].get("choices")


def _converter(one: Any) -> Callable[[str], Any] | None:
    """Return what makes a number of the text of an option's value, if it is one of a range; None for other options."""
    is_number = isinstance(one.default, int | float) and not isinstance(one.default, bool)
    converter: Callable[[str], Any] | None = one.metadata["of_argparse"].get(
        "type", positive_int if is_number else None
    )
    return converter


def _flag(one: Any) -> str:
    return str(one.metadata["flag"] or f"--{one.name.replace('_', '-')}")
