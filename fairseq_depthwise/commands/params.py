"""``params``: our parameter counts compared with the published ones.

example:
  fairseq-depthwise params
  fairseq-depthwise params --json > params.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairseq_depthwise.commands.parsers import add_json
from fairseq_depthwise.tables import aligned, json_text

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.published_counts import CountedRow, Interval


def add_to(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.evaluation import published_counts as published

    counted = [published.count(row) for row in published.ROWS]
    if options.json:
        rows = [_as_json(row) for row in counted]
        print(json_text({"vocabulary": published.VOCABULARY, "rows": rows}))
        return

    # All rows have the same columns.
    cells = [_cells(row) for row in counted]
    print(aligned([list(cells[0]), *(list(row.values()) for row in cells)]))
    print(
        f"Depth-wise LSTM: with {published.VOCABULARY:,} words. The paper counts a bias for each of them in the "
        "classifier, which fairseq's tied\noutput projection does not have; it is added before comparing.\n"
        "Shallow-to-deep: with one vocabulary for each language pair, and no bias:\n"
        f"{_fitting(published.VOCABULARIES[published.SHALLOW_TO_DEEP])}.\n"
        "Multi-unit: with --share-decoder-input-output-embed instead and a bias, as many words on both sides:\n"
        f"{_fitting(published.VOCABULARIES[published.MULTI_UNIT])}."
    )


def _cells(counted: CountedRow) -> dict[str, str]:
    """Return the cells of a row by the names of their columns."""
    row = counted.row
    return {
        "paper": row.paper,
        "table": str(row.table),
        "row": row.row,
        "words": f"{row.vocabulary:,}",
        "our parameters": f"{counted.parameters:,}",
        "compared, M": counted.compared,
        "published, M": row.published,
        "difference": counted.difference,
        "--share-all-embeddings and": _flags(counted),
        "reading": row.reading if row.consistent else f"no consistent reading: {row.reading}",
    }


def _as_json(counted: CountedRow) -> dict[str, Any]:
    row = counted.row
    compared = float(counted.compared)
    return {
        "paper": row.paper,
        "table": row.table,
        "row": row.row,
        "embeddings": row.embeddings,
        "vocabulary": row.vocabulary,
        "classifier_bias": row.classifier_bias,
        "consistent": row.consistent,
        "reading": row.reading,
        "flags": _flags(counted),
        "parameters": counted.parameters,
        "parameters_with_bias_in_millions": compared if row.classifier_bias else None,
        "compared_in_millions": compared,
        "published_in_millions": float(row.published),
        "difference_in_millions": float(counted.difference),
    }


def _flags(counted: CountedRow) -> str:
    return f"--arch {counted.row.arch} {counted.row.options}".rstrip()


def _fitting(vocabularies: Mapping[str, Interval]) -> str:
    """Return the sizes of vocabularies that fit, as text."""
    texts = []
    for pair, size in vocabularies.items():
        texts.append(f"{pair} {size.ours:,} words ({size.lowest:,} to {size.highest:,} fit)")
    return ", ".join(texts)
