"""What a part of the results consists of; ``results.py`` has the list of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from results_commands import Workplace

Numbers = Mapping[str, Any]

#: Options by name: default and meaning. The default's type is the option's; whole numbers have to be 1 or more.
Options = Mapping[str, tuple[int | float | str, str]]

#: The source language and the target language.
Languages = tuple[str, str]


def no_check(options: argparse.Namespace) -> None:
    """The check of a part whose options are all possible together."""


@dataclass(frozen=True)
class Part:
    """One question, with the runs that answer it and its section of the page.

    Attributes:
        name: the part is stored as NAME.json, and ``--part NAME`` measures it.
        options: its own; it may read those of other parts too.
        settings: the options that its results depend on, besides those of the text.
        measure: runs the commands and gives back ``commands``, ``runs`` and what else the section needs. Commands that
            are finished are not repeated.
        section: the lines of the page, from what ``measure`` gave back and from the first part on the page, if that is
            another: what both share is not said again.
        check: raises UserError where options contradict each other.
    """

    name: str
    options: Options
    settings: tuple[str, ...]
    measure: Callable[[Workplace, argparse.Namespace, Languages], dict[str, Any]]
    section: Callable[[Numbers, Numbers | None], Iterable[str]]
    check: Callable[[argparse.Namespace], None] = no_check
