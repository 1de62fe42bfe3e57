"""``params``: our parameter counts compared with the published ones, and the size of a model of one's own.

example:
  fairseq-depthwise params
  fairseq-depthwise params --arch sdt_transformer --encoder-layers 24 --share-all-embeddings --words 32000
  fairseq-depthwise params --json > params.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import SubcommandParser, add_json, positive_int, refuse_unread
from fairseq_depthwise.tables import aligned, json_text

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.published_counts import CountedRow, Interval


def add_to(parser: SubcommandParser) -> None:
    # Options of fairseq-train are not declared here; fairseq's own parser reads them.
    parser.takes_others = True
    parser.usage = "%(prog)s [-h] [--arch ARCH OPTIONS of fairseq-train] [--words N] [--readings] [--json]"
    parser.add_argument(
        "--arch", metavar="ARCH", help="count the model that fairseq-train would build with these options"
    )
    parser.add_argument(
        "--words",
        type=positive_int,
        metavar="N",
        help="size of both vocabularies (default: that of the data, if a folder is given, or 32,000)",
    )
    parser.add_argument(
        "--readings",
        action="store_true",
        help="print how each published count is read, and the options of its model",
    )
    add_json(parser)


def check(options: argparse.Namespace) -> None:
    if options.arch is None:
        refuse_unread(options, ("words",), "without --arch")
        if options.other:
            raise UserError(f"{options.other[0]} has no effect without --arch; add the architecture of the model")


def run(options: argparse.Namespace) -> None:
    if options.arch is None:
        _compare_with_published(options)
        return
    from fairseq_depthwise.evaluation.architectures import SENTENCE, measure_model

    # The model is built without memory for its parameters.
    size = measure_model(["--arch", options.arch, *options.other], options.words)
    if options.json:
        print(json_text({**size._asdict(), "operations_in_a_sentence_of": SENTENCE}))
        return
    source, target = size.words
    print(f"{size.architecture}, {source:,} words" + (f" and {target:,}" if target != source else ""))
    print(f"parameters             {size.parameters:15,}")
    print(f"  in embeddings        {size.embeddings:15,}")
    print(f"  in the rest          {size.parameters - size.embeddings:15,}")
    if size.operations is not None:
        print(f"operations for a token {size.operations:15,}")
        print(
            "operations: multiplications and additions of matrix products in a forward pass, for each target token\n"
            f"of a sentence of {SENTENCE} tokens in both languages"
        )


def _compare_with_published(options: argparse.Namespace) -> None:
    from fairseq_depthwise.evaluation import published_counts as published

    counted = [published.count(row) for row in published.ROWS]
    if options.json:
        rows = [_as_json(row) for row in counted]
        print(json_text({"vocabulary": published.VOCABULARY, "rows": rows}))
        return

    # All rows have the same columns.
    cells = [_cells(row) for row in counted]
    print(aligned([list(cells[0]), *(list(row.values()) for row in cells)]))
    if options.readings:
        for row in counted:
            print(f"{row.row.paper}, table {row.row.table}, {row.row.row}:")
            print(f"    {_flags(row)} {row.row.embeddings}")
            reading = _reading(row)
            if reading:
                print(f"    {reading}")
    print(
        "*: no consistent reading of the paper gives the published count. --readings prints how each is read.\n"
        f"Depth-wise LSTM: with {published.VOCABULARY:,} words. The paper counts a bias for each of them in the\n"
        "classifier, which fairseq's tied output projection does not have; it is added before comparing.\n"
        "Shallow-to-deep: with one vocabulary for each language pair, and no bias:\n"
        f"{_fitting(published.VOCABULARIES[published.SHALLOW_TO_DEEP])}\n"
        "Multi-unit: with a bias, as many words on both sides, and --share-decoder-input-output-embed:\n"
        f"{_fitting(published.VOCABULARIES[published.MULTI_UNIT])}"
    )


def _cells(counted: CountedRow) -> dict[str, str]:
    """Return the cells of a row by the names of their columns."""
    row = counted.row
    return {
        "paper": row.paper,
        "table": str(row.table),
        "row": row.row,
        "words": f"{row.vocabulary:,}",
        "parameters": f"{counted.parameters:,}",
        "ours, M": counted.compared,
        "paper's": row.published,
        "": counted.difference + ("" if row.consistent else " *"),
    }


def _reading(counted: CountedRow) -> str:
    row = counted.row
    return row.reading if row.consistent else f"no consistent reading: {row.reading}"


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
        texts.append(f"    {pair} {size.ours:,} words ({size.lowest:,} to {size.highest:,} fit)")
    return "\n".join(texts)
