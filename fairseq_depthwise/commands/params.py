"""``params``: our parameter counts compared with the published ones.

example:
  fairseq-depthwise params
  fairseq-depthwise params --json > params.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.tables import aligned

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.published_counts import CountedRow, Interval


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.evaluation import published_counts as published

    counted = list(map(published.count, published.ROWS))
    if options.json:
        print(json.dumps({"vocabulary": published.VOCABULARY, "rows": list(map(_as_json, counted))}, indent=2))
        return
    print(aligned([_HEADER, *map(_cells, counted)]), end="")
    print(
        f"\nDepth-wise LSTM: with {published.VOCABULARY:,} words. The paper counts a bias for each of them in the "
        "classifier, which fairseq's tied\noutput projection does not have; it is added before comparing.\n"
        "Shallow-to-deep: with one vocabulary for each language pair, and no bias:\n"
        f"{_fitting(published.VOCABULARIES[published.SHALLOW_TO_DEEP])}.\n"
        "Multi-unit: with --share-decoder-input-output-embed instead and a bias, as many words on both sides:\n"
        f"{_fitting(published.VOCABULARIES[published.MULTI_UNIT])}."
    )


def _fitting(vocabularies: Mapping[str, Interval]) -> str:
    return ", ".join(
        f"{pair} {words.chosen:,} words ({words.lowest:,} to {words.highest:,} fit)"
        for pair, words in vocabularies.items()
    )


_HEADER = (
    "paper", "table", "row", "words", "our parameters", "compared, M", "published, M", "difference",
    "--share-all-embeddings and", "reading",
)  # fmt: skip


def _cells(counted: CountedRow) -> tuple[str, ...]:
    row = counted.row
    reading = row.reading if row.consistent else f"no consistent reading: {row.reading}"
    return (
        row.paper, str(row.table), row.row, f"{row.vocabulary:,}", f"{counted.parameters:,}", counted.compared,
        row.published, counted.difference, _flags(counted), reading,
    )  # fmt: skip


def _as_json(counted: CountedRow) -> dict[str, Any]:
    row = counted.row
    names = ("paper", "table", "row", "embeddings", "vocabulary", "classifier_bias", "consistent", "reading")
    return {
        **{name: getattr(row, name) for name in names},
        "flags": _flags(counted),
        "parameters": counted.parameters,
        "parameters_with_bias_in_millions": float(counted.compared) if row.classifier_bias else None,
        "compared_in_millions": float(counted.compared),
        "published_in_millions": float(row.published),
        "difference_in_millions": float(counted.difference),
    }


def _flags(counted: CountedRow) -> str:
    return f"--arch {counted.row.arch} {counted.row.options}".rstrip()
