"""``params``: our parameter counts beside the published ones."""

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
        help="count the parameters of every published model and compare",
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
                "paper": one.row.paper,
                "table": one.row.table,
                "row": one.row.row,
                "flags": f"--arch {one.row.arch}",
                "embeddings": one.row.embeddings,
                "vocabulary": one.row.vocabulary,
                "parameters": one.parameters,
                "classifier_bias": one.row.classifier_bias,
                "parameters_with_bias_in_millions": float(one.compared) if one.row.classifier_bias else None,
                "compared_in_millions": float(one.compared),
                "published_in_millions": float(one.row.published),
                "difference_in_millions": float(one.difference),
                "consistent": one.row.consistent,
                "reading": one.row.reading,
            }
            for one in counted
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


def _cells(one: CountedRow) -> tuple[str, ...]:
    row = one.row
    reading = row.reading if row.consistent else f"no consistent reading: {row.reading}"
    return (
        row.paper, str(row.table), row.row, f"{row.vocabulary:,}", f"{one.parameters:,}", one.compared, row.published,
        one.difference, f"--arch {row.arch}", reading,
    )  # fmt: skip


def _print_table(lines: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        aligned = [
            text.rjust(width) if column in _NUMBERS else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(aligned).rstrip())
