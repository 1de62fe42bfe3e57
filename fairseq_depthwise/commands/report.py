"""``report``: training runs as a table, or as one page of figures and numbers.

example:
  fairseq-depthwise report checkpoints
  fairseq-depthwise report checkpoints --output report.html
  fairseq-depthwise report baseline deeper --output both.html --json > both.json
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_depthwise.figures import make_titles
from fairseq_depthwise.options import require_extra
from fairseq_depthwise.tables import aligned, json_text

if TYPE_CHECKING:
    from fairseq_depthwise.reports.training_log import Run


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a log of fairseq-train, or a folder: --save-dir of fairseq-depthwise train, one with the logs of a run, "
        "or one with TensorBoard's event files",
    )
    parser.add_argument("--output", metavar="PAGE", help="the HTML page to write; without it a table is printed")
    parser.add_argument("--force", action="store_true", help="replace PAGE if it exists")
    parser.add_argument("--json", action="store_true", help="print all metrics as JSON instead of the table")


def check(options: argparse.Namespace) -> None:
    if options.output is not None:
        options.output = output_file("--output", options.output, force=options.force, inputs=options.runs)
        require_extra("analysis", "matplotlib")


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.reports.page import make_page, make_summary_table
    from fairseq_depthwise.reports.training_log import read_run

    page = options.output
    runs = [read_run(path) for path in options.runs]
    names = make_titles([_named_path(path) for path in options.runs])
    if page is not None:
        # The logs in folders, which are known by now, may not be the page either.
        for run in runs:
            output_file("--output", page, force=True, inputs=run.files)
        text = make_page(names, runs)
        with atomic_write(page) as file:
            file.write(text.encode())
        print(f"{page} written", file=sys.stderr)
    if options.json:
        print(_as_json(names, runs))
    else:
        print(aligned(make_summary_table(names, runs)), end="")


def _named_path(path: str) -> str:
    """Return the path that a run is named after: the folder of a train.log."""
    path = os.path.abspath(path)
    return os.path.dirname(path) if os.path.basename(path) == "train.log" else path


def _as_json(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Return all that is known of the runs."""
    from fairseq_depthwise.reports.page import summarize

    documents = []
    for name, run in zip(names, runs, strict=True):
        document = {
            "name": name,
            "summary": summarize(run, runs[0]),
            "source": run.source,
            "options": run.options,
            "series": run.series,
        }
        documents.append(document)
    return json_text({"runs": documents})
