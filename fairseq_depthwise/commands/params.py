"""``params``: our parameter counts beside the published ones."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fairseq_depthwise.commands.parsers import add_parser


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "params",
        run=run,
        help="count the parameters of every published model and compare",
        example="fairseq-depthwise params\n  fairseq-depthwise params --json > params.json",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.evaluation.published_counts import ROWS, VOCABULARY, count

    counted = [count(row) for row in ROWS]
    if options.json:
        lines = [
            {
                "table": one.row.table,
                "row": one.row.row,
                "flags": _flags(one.row.preset),
                "parameters": one.parameters,
                "parameters_with_bias_in_millions": float(one.with_bias),
                "published_in_millions": float(one.row.published),
                "difference_in_millions": float(one.difference),
                "consistent": one.row.consistent,
                "reading": one.row.reading,
            }
            for one in counted
        ]
        print(json.dumps({"vocabulary": VOCABULARY, "rows": lines}, indent=2))
        return 0
    cells = [("table", "row", "our parameters", "+ bias, M", "published, M", "difference", "reading")]
    for one in counted:
        reading = one.row.reading if one.row.consistent else f"no consistent reading: {one.row.reading}"
        cells.append(
            (str(one.row.table), one.row.row, f"{one.parameters:,}", one.with_bias, one.row.published, one.difference,
             reading)
        )  # fmt: skip
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    flags = ["--share-all-embeddings and"] + [_flags(one.row.preset) for one in counted]
    for line, flag in zip(cells, flags, strict=True):
        aligned = [
            text.rjust(width) if 2 <= column <= 5 else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join([*aligned[:6], flag.ljust(max(map(len, flags))), aligned[6]]).rstrip())
    print(
        f"\nWith {VOCABULARY:,} words. The papers count a bias for each of them in the classifier, which fairseq's "
        "tied output\nprojection does not have; it is added before comparing."
    )
    return 0


def _flags(preset: str) -> str:
    return f"--arch depthwise_lstm_transformer_{preset}"
