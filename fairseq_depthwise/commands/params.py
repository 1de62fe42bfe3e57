"""``params``: our parameter counts compared with the published ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.commands.parsers import add_parser

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.published_counts import CountedRow, Interval


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "params",
        run=run,
        help="count the parameters of every published model, and compare with the published counts",
        example="fairseq-depthwise params\n  fairseq-depthwise params --json > params.json",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.evaluation.published_counts import (
        MULTI_UNIT_VOCABULARIES,
        ROWS,
        SHALLOW_TO_DEEP_VOCABULARIES,
        VOCABULARY,
        count,
    )

    counted = [count(row) for row in ROWS]
    if options.json:
        lines = [
            {
                "paper": row.row.paper,
                "table": row.row.table,
                "row": row.row.row,
                "flags": _flags(row),
                "embeddings": row.row.embeddings,
                "vocabulary": row.row.vocabulary,
                "parameters": row.parameters,
                "classifier_bias": row.row.classifier_bias,
                "parameters_with_bias_in_millions": float(row.compared) if row.row.classifier_bias else None,
                "compared_in_millions": float(row.compared),
                "published_in_millions": float(row.row.published),
                "difference_in_millions": float(row.difference),
                "consistent": row.row.consistent,
                "reading": row.row.reading,
            }
            for row in counted
        ]
        print(json.dumps({"vocabulary": VOCABULARY, "rows": lines}, indent=2))
        return 0
    _print_table([_HEADER, *map(_cells, counted)])
    print(
        f"\nDepth-wise LSTM: with {VOCABULARY:,} words. The paper counts a bias for each of them in the classifier, "
        "which fairseq's tied\noutput projection does not have; it is added before comparing.\n"
        "Shallow-to-deep: with one vocabulary for each language pair, and no bias:\n"
        f"{_fitting(SHALLOW_TO_DEEP_VOCABULARIES)}.\n"
        "Multi-unit: with --share-decoder-input-output-embed instead and a bias, as many words on both sides:\n"
        f"{_fitting(MULTI_UNIT_VOCABULARIES)}."
    )
    return 0


def _fitting(vocabularies: Mapping[str, Interval]) -> str:
    return ", ".join(
        f"{pair} {words.chosen:,} words ({words.lowest:,} to {words.highest:,} fit)"
        for pair, words in vocabularies.items()
    )


_HEADER = (
    "paper", "table", "row", "words", "our parameters", "compared, M", "published, M", "difference",
    "--share-all-embeddings and", "reading",
)  # fmt: skip

_NUMBERS = range(3, 8)


def _cells(counted: CountedRow) -> tuple[str, ...]:
    row = counted.row
    reading = row.reading if row.consistent else f"no consistent reading: {row.reading}"
    return (
        row.paper, str(row.table), row.row, f"{row.vocabulary:,}", f"{counted.parameters:,}", counted.compared,
        row.published, counted.difference, _flags(counted), reading,
    )  # fmt: skip


def _flags(counted: CountedRow) -> str:
    return f"--arch {counted.row.arch} {counted.row.options}".rstrip()


def _print_table(lines: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            text.rjust(width) if column in _NUMBERS else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
