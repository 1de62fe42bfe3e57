"""``report``: training runs as one page of figures and numbers."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.files import written_whole
from fairseq_compat.outputs import output_file
from fairseq_depthwise.commands.parsers import add_parser
from fairseq_depthwise.tables import aligned


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "report",
        run=run,
        help="make one HTML page of training runs: loss, BLEU, rate, depth, gates, speed, options and versions",
        example="fairseq-depthwise report checkpoints/train.log --output report.html\n"
        "  fairseq-depthwise report baseline deeper --output both.html --json > both.json",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a log of fairseq-train, or the folder that holds it")
    parser.add_argument("--output", metavar="PAGE", help="the page to write: .html")
    parser.add_argument("--force", action="store_true", help="replace PAGE if it exists")
    parser.add_argument(
        "--json", action="store_true", help="print all metrics as JSON; without --output, write no page"
    )


def run(options: argparse.Namespace) -> int:
    output = _checked(options)

    from fairseq_depthwise.reports.find_runs import names_of, read_run
    from fairseq_depthwise.reports.run_summary import as_json, summarize_run, table_of

    names = names_of(options.runs)
    runs = []
    for path in options.runs:
        print(f"reading {path}", file=sys.stderr)
        runs.append(read_run(path))
    if output is not None:
        from fairseq_depthwise.reports.page import make_page

        page = make_page(names, runs).encode()
        with written_whole(output) as file:
            file.write(page)
        print(f"{output} written, {len(page) / 1e6:.1f} MB", file=sys.stderr)
    if options.json:
        print(json.dumps({"runs": [as_json(name, run) for name, run in zip(names, runs, strict=True)]}, indent=2))
    else:
        rows = table_of([summarize_run(run) for run in runs])
        print(aligned([["", *names], *([title, *cells] for title, cells in rows)]), end="")
    return 0


def _checked(options: argparse.Namespace) -> str | None:
    """Return the path of the page, if one is wanted, after checking that it can be written."""
    if options.output is None:
        if not options.json:
            raise UserError("report needs --output PAGE.html, or --json for the numbers alone")
        return None
    output = output_file("--output", options.output, force=options.force, inputs=options.runs)
    if not output.endswith((".html", ".htm")):
        raise UserError(f"--output {output}: the name must end in .html")

    from fairseq_depthwise.figures import require_matplotlib

    require_matplotlib("--output")
    return output
