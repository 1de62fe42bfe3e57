"""The subcommands that analyze trained models: the modules of ``analysis`` that have an ``ANALYSIS``."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import fairseq_depthwise.analysis
from fairseq_compat.versions import fairseq_problem
from fairseq_depthwise.commands.parsers import add_parser


def add_to(subcommands: Any) -> None:
    if fairseq_problem() is not None:  # which only `doctor` can do without
        return
    package = fairseq_depthwise.analysis
    for name in (module.name for module in pkgutil.iter_modules(package.__path__)):
        analysis = getattr(import_module(f"{package.__name__}.{name}"), "ANALYSIS", None)
        if analysis is not None:
            parser = add_parser(subcommands, name, run=analysis.run, help=analysis.help, example=analysis.example)
            analysis.add_options(parser)
