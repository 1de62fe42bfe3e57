"""Make tables from records, and put them into pages between their markers.

A table stands between ``<!-- RECORD TABLE -->`` and ``<!-- end of RECORD TABLE -->``; RECORD is the name of a file in
``docs/records``, or ``protocol_`` and the name of a plan of ``recipes/sweep.py``. If there is no such record, or its
program no longer exists, the table in the page stays as it is.

    python benchmarks/tables.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import comparison
import sweep
import update_time
from plans import Plan
from recipe_step import run_step
from records import RECORDS, Record
from turns import extent, ratios

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.tables import Table, spread

TableOrText = Table | str

#: The cell of a row that was not measured.
NOTHING = "-"

#: Row -> its rate in each round of a meeting, in which rows took turns: target tokens or sentences per second.
Rates = Mapping[str, Sequence[float]]


def make_tables(record: Record) -> dict[str, str]:
    """Return the tables of a record by name; none if its program no longer exists."""
    makers: dict[str, Callable[[Record], Mapping[str, TableOrText]]] = {
        "bench": make_speed_tables,  # what speed.py was called before
        "speed": make_speed_tables,
        "soak": make_soak_tables,
        "quality": make_quality_table,
        "update_time": update_time.make_tables,
    }
    setup = record["setup"]
    if setup["program"] not in makers:
        return {}
    commit = f" at commit {setup['commit']}" if setup.get("commit") else ""
    # Every record says how it was made.
    tables = {
        "setup": f"- Made by `{setup['command']}`{commit}.\n"
        f"- Machine: {setup['machine']}; device {setup['device']}; threads of PyTorch: {setup['threads']}.\n"
        f"- Versions: {setup['versions']}.\n"
    }
    for name, shown in makers[setup["program"]](record).items():
        if isinstance(shown, str):
            tables[name] = shown
        elif shown.rows:
            tables[name] = shown.markdown()
    return tables


# --- speed.py ---------------------------------------------------------------------------------------------------------


def make_speed_tables(record: Record) -> dict[str, TableOrText]:
    """Return a table for each precision: target tokens or sentences per second, compared with another row."""
    tables: dict[str, TableOrText] = {}
    precisions = record["setup"]["precisions"]
    for precision in precisions:
        meetings = _group_meetings(record, precision)
        table = Table("row", "compared with", *meetings)
        for row, about in record["rows"].items():
            base = "" if about["beside"] == row else about["beside"]
            cells = {case: _format_rate(of_case, row, base) for case, of_case in meetings.items()}
            if set(cells.values()) != {NOTHING}:
                table.add({"row": row, "compared with": base} | cells)
        tables[f"speed_{precision}" if len(precisions) > 1 else "speed"] = table
    return tables


def _group_meetings(record: Record, precision: str) -> dict[str, list[Rates]]:
    """Return title of a case -> the rates of all its meetings."""
    meetings: dict[str, list[Rates]] = {}
    # A row that others are compared with may have been in several meetings.
    for meeting in record["meetings"]:
        case = meeting["case"]
        # Earlier versions also measured the encoder alone, and sentences of a single length.
        if meeting["precision"] != precision or case["part"] == "encoding" or case.get("length"):
            continue
        title = case["part"]
        if case["beam"]:
            title = f"beam {case['beam']}, {case['sentences']} at once"
        rates = {}
        for row, answers in meeting["rows"].items():
            # Amount per second in each round.
            rates[row] = ratios(answers["amount"], answers["seconds"])
        meetings.setdefault(title, []).append(rates)
    return meetings


def _format_rate(meetings: Sequence[Rates], row: str, base: str) -> str:
    """Return a row's median rate; with a ``base`` also the ratio of their rates in the same round."""
    all_rates: list[float] = []
    all_ratios: list[float] = []
    for rates in meetings:
        all_rates += rates.get(row, [])
        if row in rates and base in rates:
            all_ratios += ratios(rates[row], rates[base])
    if not all_rates:
        return NOTHING
    low, rate, high = extent(all_rates)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if not base:
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    if not all_ratios:
        return shown
    low, middle, high = extent(all_ratios)
    return f"{shown}, **{middle:.2f}** ({low:.2f} - {high:.2f})"


# --- quality.py and tests/soak ----------------------------------------------------------------------------------------


def make_quality_table(record: Record) -> dict[str, TableOrText]:
    """Return BLEU and milliseconds per sentence at each batch size: a row per model, a column per way of decoding."""
    results = sorted(record["rows"], key=lambda result: result["batch"])
    batches = " and ".join(str(batch) for batch in dict.fromkeys(result["batch"] for result in results))
    title = f"sacreBLEU; milliseconds, {batches} at a time"
    ways = dict.fromkeys(result["way"] for result in results)
    rows: dict[str, dict[str, str]] = {}
    # A cell has BLEU once, then the milliseconds at each batch size.
    for result in results:
        row = rows.setdefault(result["model"], dict.fromkeys(ways, NOTHING) | {title: result["model"]})
        milliseconds = spread(result["milliseconds"], 2)
        if row[result["way"]] == NOTHING:
            row[result["way"]] = f"{result['bleu']:.2f}; {milliseconds}"
        else:
            row[result["way"]] += f", {milliseconds}"
    table = Table(title, *ways)
    for row in rows.values():
        table.add(row)
    return {"ways": table}


def make_soak_tables(record: Record) -> dict[str, TableOrText]:
    """Return the outcomes of the attacks of ``tests/soak``, and their kinds."""
    outcomes = record["outcomes"]
    table = Table("what is attacked", "attacks", *outcomes)
    for name, counts in record["counts"].items():
        row = {"what is attacked": name, "attacks": f"{sum(counts.values()):,}"}
        for outcome in outcomes:
            row[outcome] = f"{counts.get(outcome, 0):,}"
        table.add(row)
    kinds = [f"- {name}: {', '.join(attacks)}.\n" for name, attacks in record["kinds"].items()]
    return {"counts": table, "kinds": "".join(kinds)}


# --- pages ------------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(
    r"<!-- (?P<record>[\w-]+) (?P<table>[\w.-]+) -->\n(?P<text>.*?)<!-- end of (?P=record) (?P=table) -->\n", re.DOTALL
)


def render(text: str, folder: Path = RECORDS) -> str:
    """Return a page's text with the tables of all records that there are."""
    # Without this check, a marker whose end is missing would replace all text up to the next end with its name.
    markers = re.findall(r"^<!-- (end of )?([\w-]+ [\w.-]+) -->$", text, re.MULTILINE)
    # Markers must alternate: a beginning, then the end of the same name.
    for (_, name), (end, end_name) in zip(markers[::2], [*markers[1::2], ("", "")], strict=False):
        if not end or name != end_name:
            raise UserError(f"the marker of {name} has no end before the next one")

    def replaced(block: re.Match[str]) -> str:
        name, table = block["record"], block["table"]
        tables = _find_tables(name, folder)
        if not tables:
            return block[0]
        if table not in tables:
            raise UserError(f"{name} has no table {table}; it has {', '.join(tables)}")
        return f"<!-- {name} {table} -->\n\n{tables[table]}\n<!-- end of {name} {table} -->\n"

    return _BLOCK.sub(replaced, text)


def _find_tables(name: str, folder: Path) -> dict[str, str]:
    plan = sweep.PLANS / f"{name.removeprefix('protocol_')}.toml"
    if name.startswith("protocol_") and plan.exists():
        return comparison.make_tables(Plan(plan, sweep.RESULTS))
    record = folder / f"{name}.json"
    return make_tables(json.loads(record.read_text(encoding="utf-8"))) if record.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown files with markers")
    for page in parser.parse_args().pages:
        text = render(page.read_text(encoding="utf-8"))
        with atomic_write(page) as file:
            file.write(text.encode())


if __name__ == "__main__":
    run_step(main)
