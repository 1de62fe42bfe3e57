"""``report``: training runs as one page of figures and numbers.

example:
  fairseq-depthwise report checkpoints/train.log --output report.html
  fairseq-depthwise report baseline deeper --output both.html --json > both.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import output_file
from fairseq_depthwise.figures import titles_of
from fairseq_depthwise.options import require_extra
from fairseq_depthwise.tables import aligned


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="a log of fairseq-train --log-format json, or the folder that holds it or TensorBoard's event files",
    )  # fmt: skip
    parser.add_argument("--output", metavar="PAGE", help="the HTML page to write")
    parser.add_argument("--force", action="store_true", help="replace PAGE if it exists")
    parser.add_argument(
        "--json", action="store_true", help="print all metrics as JSON; without --output, write no page"
    )


def run(options: argparse.Namespace) -> None:
    if options.output is None and not options.json:
        raise UserError("report needs --output PAGE.html, or --json for the numbers alone")
    if options.output is not None:
        options.output = output_file("--output", options.output, force=options.force, inputs=options.runs)
        require_extra("analysis", "matplotlib")

    from fairseq_depthwise.reports.page import make_page, summarize, summary_table
    from fairseq_depthwise.reports.training_log import read_run

    runs = [read_run(path) for path in options.runs]
    if options.output is not None:  # a folder's log has been found by now
        output_file("--output", options.output, force=True, inputs=[run.source for run in runs])
    paths = map(os.path.abspath, options.runs)
    names = titles_of([os.path.dirname(path) if os.path.basename(path) == "train.log" else path for path in paths])
    if options.output is not None:
        page = make_page(names, runs)
        with atomic_write(options.output) as file:
            file.write(page.encode())
        print(f"{options.output} written", file=sys.stderr)
    if options.json:
        shown = ("source", "options", "series")
        documents = [
            {"name": name, "summary": summarize(run, runs[0]), **{field: getattr(run, field) for field in shown}}
            for name, run in zip(names, runs, strict=True)
        ]
        # JSON has no nan.
        finite = json.loads(json.dumps({"runs": documents}), parse_constant=lambda name: None)
        print(json.dumps(finite, indent=2))
    else:
        print(aligned(summary_table(names, runs)), end="")
