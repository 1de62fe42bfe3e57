"""Makes tables from records, and puts them into pages between their markers.

A table stands between ``<!-- RECORD TABLE -->`` and ``<!-- end of RECORD TABLE -->``; RECORD is the name of a file in
``docs/records``, or ``protocol_`` and the name of a plan of ``recipes/sweep.py``. Where there is no such record, or its
program is gone, what stands there stays.

    python benchmarks/tables.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import growth
import step_profile
from records import RECORDS, Record, quartiles, ratios, read_record, run_program, tell

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.tables import markdown

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("recipes", "recipes/lib")]
import sweep  # the folder is on the path by the line above

#: A table in lines and cells, or a text.
Table = Sequence[Sequence[str]] | str
NOTHING = "-"


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of a record by name; none where its program is gone."""
    makers: dict[str, Callable[[Record], Mapping[str, Table]]] = {
        "bench": speeds,  # what speed.py was called before
        "speed": speeds,
        "growth": growth.tables,
        "step_profile": lambda record: {"operations": step_profile.table(record)},
        "proxy": forms,
        "depth_profile": lambda record: {},
        "soak": soak,
    }
    setup = record["setup"]
    if setup["program"] not in makers:
        return {}
    tables: dict[str, str] = {
        "setup": f"- Made by `{setup['command']}`{f' at commit {commit}' if (commit := setup.get('commit')) else ''}.\n"
        f"- Machine: {setup['machine']}; device {setup['device']}; threads of PyTorch: {setup['threads']}.\n"
        f"- Versions: {setup['versions']}.\n"
    }
    for name, lines in makers[setup["program"]](record).items():
        if len(lines) > 1:  # more than the columns' names
            tables[name] = lines if isinstance(lines, str) else markdown(lines)
    return tables


# --- speed --------------------------------------------------------------------------------------------------------


def speeds(record: Record) -> dict[str, Table]:
    """Return for each precision the table of speed and that of memory."""
    tables: dict[str, Table] = {}
    for precision in record["setup"]["precisions"]:
        suffix = f"_{precision}" if len(record["setup"]["precisions"]) > 1 else ""
        tables[f"speed{suffix}"] = _speed(record, precision)
        tables[f"size{suffix}"] = _size(record, precision)
    return tables


def _meetings(record: Record, precision: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return case in words -> the answers of all rows, of each meeting."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for meeting in record["meetings"]:
        case = meeting["case"]
        # Earlier programs measured the encoder alone and sentences of one length, too.
        if meeting["precision"] == precision and case["part"] != "encoding" and not case.get("length"):
            decoding = f"beam {case['beam']}, {case['sentences']} at once"
            found.setdefault(decoding if case["beam"] else case["part"], []).append(meeting["rows"])
    return found


def _speed(record: Record, precision: str) -> Table:
    """Return target tokens or sentences a second, and how many times as fast as what a row is compared with."""
    cases = _meetings(record, precision)
    lines = [["row", "compared with", *cases]]
    for row, about in record["rows"].items():
        beside = "" if about["beside"] == row else about["beside"]
        cells = [_rate(meetings, row, beside) for meetings in cases.values()]
        if set(cells) != {NOTHING}:
            lines.append([row, beside, *cells])
    return lines


def _rate(meetings: Sequence[Mapping[str, Any]], row: str, beside: str) -> str:
    rates = [{name: ratios(one["amount"], one["seconds"]) for name, one in rows.items()} for rows in meetings]
    own = [rate for rows in rates for rate in rows.get(row, [])]
    if not own:
        return NOTHING
    low, rate, high = quartiles(own)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if not beside:
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    # Round by round, where both took turns.
    times = [time for rows in rates if {row, beside} <= rows.keys() for time in ratios(rows[row], rows[beside])]
    if not times:
        return shown
    low, middle, high = quartiles(times)
    return f"{shown}, **{middle:.2f}** ({low:.2f} - {high:.2f})"


def _size(record: Record, precision: str) -> Table:
    """Return parameters and peaks of memory, and by what a row is compared with."""
    amounts: dict[str, dict[str, list[float]]] = {"parameters": {}}
    for row, about in record["rows"].items():
        amounts["parameters"][row] = [about["parameters"]]
    for one in record["memory"]:
        if one["precision"] == precision:  # bytes that stock fairseq never reads are left out
            column = amounts.setdefault(f"{one['part']} peak, MiB", {})
            column.setdefault(one["row"], []).append((one["peak"] - one["unused"]) / 2**20)
    lines = [["row", "compared with", *amounts]]
    for row, about in record["rows"].items():
        beside, cells = "" if about["beside"] == row else about["beside"], []
        for column in amounts.values():
            own, other = (statistics.median(column.get(name, [0])) for name in (row, beside))
            cells.append((f"{own:,.0f}" if own else NOTHING) + (f" ({own / other:.2f})" if own and other else ""))
        lines.append([row, beside, *cells])
    return lines


# --- programs of one table ----------------------------------------------------------------------------------------


def forms(record: Record) -> dict[str, Table]:
    """Make a table of each size of ``proxy.py``, and one of its search: losses and the difference from a base."""
    runs = {tuple(name.split(":")): run for name, run in record["runs"].items()}
    tables: dict[str, Table] = {}
    for size, title, base in (("long", "long", "stock"), ("short", "short", "stock"), ("long", "search", "open")):
        chosen = [key for key in runs if key[0] == size and (title == "search") == key[1].startswith("open-")]
        updates = [update for update, _ in runs[chosen[0]]["valid"]] if chosen else []
        lines = [["form", "seed", *map(str, updates), "training sentences", f"from `{base}`", "options"]]
        for key in sorted(chosen, key=lambda key: (list(record["runs"]).index(":".join((*key[:2], "1"))), key[2])):
            losses, last = [loss for _, loss in runs[key]["valid"]], runs[key]["seen"][-1][1]
            other = runs.get((size, base, key[2]))
            difference = NOTHING if other is None or key[1] == base else f"{losses[-1] - other['valid'][-1][1]:+.3f}"
            cells = [f"{loss:.3f}" for loss in (*losses, last)]
            lines.append([f"`{key[1]}`", key[2], *cells, difference, f"`{runs[key]['options']}`"])
        tables[title] = lines
    return tables


def soak(record: Record) -> dict[str, Table]:
    """Return what became of the attacks of ``tests/soak``, and what they were."""
    outcomes = record["outcomes"]
    lines = [["what is attacked", "attacks", *outcomes]]
    lines += [
        [name, f"{sum(counts.values()):,}", *(f"{counts.get(outcome, 0):,}" for outcome in outcomes)]
        for name, counts in record["counts"].items()
    ]
    return {"counts": lines, "kinds": "".join(f"- {name}: {', '.join(of)}.\n" for name, of in record["kinds"].items())}


# --- pages --------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(
    r"<!-- (?P<record>[\w-]+) (?P<table>[\w.-]+) -->\n(?P<text>.*?)<!-- end of (?P=record) (?P=table) -->\n", re.DOTALL
)


def render(text: str, folder: Path = RECORDS) -> str:
    """Return a page's text with the tables of all records that there are.

    Raises:
        UserError: a record has no such table, or a marker no end.
    """
    markers = re.findall(r"^<!-- (end of )?([\w-]+ [\w.-]+) -->$", text, re.MULTILINE)
    for (_, name), (end, other) in zip(markers[::2], [*markers[1::2], ("", "")], strict=False):
        if not end or name != other:
            raise UserError(f"the marker of {name} has no end before the next one")

    def replaced(block: re.Match[str]) -> str:
        name, table = block["record"], block["table"]
        tables = _tables_named(name, folder)
        if not tables:
            return block[0]
        if table not in tables:
            raise UserError(f"{name} has no table {table}; it has {', '.join(tables)}")
        return f"<!-- {name} {table} -->\n\n{tables[table]}\n<!-- end of {name} {table} -->\n"

    return _BLOCK.sub(replaced, text)


def _tables_named(name: str, folder: Path) -> dict[str, str]:
    plan = sweep.PLANS / f"{name.removeprefix('protocol_')}.toml"
    if name.startswith("protocol_") and plan.exists():
        return sweep.tables_of(sweep.Plan(plan, sweep.RESULTS))
    record = read_record(folder, name)
    return {} if record is None else tables_of(record)


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown files with markers")
    return parser.parse_args(given)


def run(options: argparse.Namespace, _: Sequence[str]) -> None:
    """Write the tables into all pages."""
    for page in options.pages:
        tell(str(page))
        text = render(page.read_text(encoding="utf-8"))
        with atomic_write(page) as file:
            file.write(text.encode())


if __name__ == "__main__":
    sys.exit(run_program("tables", parse_options, run, None))
