"""How subcommands that look at several checkpoints print what they found."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Report = TypeVar("Report")


def print_reports(
    options: argparse.Namespace,
    reports: Sequence[Report],
    *,
    as_json: Callable[[Report], dict[str, Any]],
    as_csv: Callable[[Sequence[Report]], str],
    as_text: Callable[[Report], str],
) -> None:
    """Print a report for each checkpoint in the form that was asked for (``--json``, ``--csv``, or a table)."""
    if options.json:
        print(json.dumps({"data": options.data, "checkpoints": [as_json(one) for one in reports]}, indent=2))
    elif options.csv:
        print(as_csv(reports), end="")
    else:
        print("\n".join(map(as_text, reports)), end="")
