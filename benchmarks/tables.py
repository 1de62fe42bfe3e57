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

import comparison
import step_profile
import sweep
import update_time
from plans import Plan
from records import RECORDS, Record, extent, ratios, read_record, run_program

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.tables import Table, spread

#: A table, or a text.
Shown = Table | str
NOTHING = "-"


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of a record by name; none where its program is gone."""
    makers: dict[str, Callable[[Record], Mapping[str, Shown]]] = {
        "bench": speeds,  # what speed.py was called before
        "speed": speeds,
        "step_profile": lambda record: {"operations": step_profile.table(record)},
        "soak": soak,
        "quality": qualities,
        "update_time": update_time.tables,
    }
    setup = record["setup"]
    if setup["program"] not in makers:
        return {}
    commit = f" at commit {setup['commit']}" if setup.get("commit") else ""
    tables: dict[str, str] = {
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


def speeds(record: Record) -> dict[str, Shown]:
    """Return for each precision tables of speed and of size, each beside what a row is compared with.

    Speeds are target tokens or sentences a second; peaks leave out the bytes that stock fairseq never reads.
    """
    tables: dict[str, Shown] = {}
    precisions = record["setup"]["precisions"]
    for precision in precisions:
        rates = _rates_by_case(record, precision)
        amounts = _amounts(record, precision)
        speed = Table("row", "compared with", *rates)
        size = Table("row", "compared with", *amounts)
        for row, about in record["rows"].items():
            beside = "" if about["beside"] == row else about["beside"]
            names = {"row": row, "compared with": beside}
            cells = {case: _rate(meetings, row, beside) for case, meetings in rates.items()}
            if set(cells.values()) != {NOTHING}:
                speed.add(names | cells)
            size.add(names | {amount: _amount(column, row, beside) for amount, column in amounts.items()})
        suffix = f"_{precision}" if len(precisions) > 1 else ""
        tables[f"speed{suffix}"] = speed
        tables[f"size{suffix}"] = size
    return tables


def _rates_by_case(record: Record, precision: str) -> dict[str, list[dict[str, list[float]]]]:
    """Return for each case its meetings, in which rows took turns: amounts a second of each row by round."""
    cases: dict[str, list[dict[str, list[float]]]] = {}
    for meeting in record["meetings"]:
        case = meeting["case"]
        # Earlier programs measured the encoder alone and sentences of one length, too.
        if meeting["precision"] != precision or case["part"] == "encoding" or case.get("length"):
            continue
        title = case["part"]
        if case["beam"]:
            title = f"beam {case['beam']}, {case['sentences']} at once"
        rates = {row: ratios(answers["amount"], answers["seconds"]) for row, answers in meeting["rows"].items()}
        cases.setdefault(title, []).append(rates)
    return cases


def _amounts(record: Record, precision: str) -> dict[str, dict[str, list[float]]]:
    """Return parameters and peaks of memory, each by row."""
    amounts = {"parameters": {row: [about["parameters"]] for row, about in record["rows"].items()}}
    for entry in record["memory"]:
        if entry["precision"] == precision:
            column = amounts.setdefault(f"{entry['part']} peak, MiB", {})
            column.setdefault(entry["row"], []).append((entry["peak"] - entry["unused"]) / 2**20)
    return amounts


def _rate(meetings: Sequence[Mapping[str, Sequence[float]]], row: str, beside: str) -> str:
    """Return a row's median rate, and how many times that of ``beside``, if there is one, round by round."""
    all_rates: list[float] = []
    times: list[float] = []
    for rates in meetings:
        all_rates += rates.get(row, [])
        if row in rates and beside in rates:
            times += ratios(rates[row], rates[beside])
    if not all_rates:
        return NOTHING
    low, rate, high = extent(all_rates)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if not beside:
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    if not times:
        return shown
    low, middle, high = extent(times)
    return f"{shown}, **{middle:.2f}** ({low:.2f} - {high:.2f})"


def _amount(column: Mapping[str, Sequence[float]], row: str, beside: str) -> str:
    """Return a row's median amount, and how many times that of ``beside``."""
    if row not in column:
        return NOTHING
    amount = statistics.median(column[row])
    text = f"{amount:,.0f}"
    if beside in column:
        text += f" ({amount / statistics.median(column[beside]):.2f})"
    return text


def qualities(record: Record) -> dict[str, Shown]:
    """Return BLEU and milliseconds a sentence for each batch size: models are rows and ways of decoding columns."""
    results = sorted(record["rows"], key=lambda result: result["batch"])
    batches = " and ".join(str(batch) for batch in dict.fromkeys(result["batch"] for result in results))
    title = f"sacreBLEU; milliseconds, {batches} at a time"
    cells: dict[str, dict[str, str]] = {}
    for result in results:
        of_model = cells.setdefault(result["model"], {title: result["model"]})
        milliseconds = spread(result["milliseconds"], 2)
        if result["way"] in of_model:
            of_model[result["way"]] += f", {milliseconds}"
        else:
            of_model[result["way"]] = f"{result['bleu']:.2f}; {milliseconds}"
    ways = dict.fromkeys(result["way"] for result in results)
    table = Table(title, *ways)
    for of_model in cells.values():
        table.add(dict.fromkeys(ways, NOTHING) | of_model)
    return {"ways": table}


def soak(record: Record) -> dict[str, Shown]:
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
        return comparison.tables_of(Plan(plan, sweep.RESULTS))
    record = read_record(folder, name)
    return {} if record is None else tables_of(record)


def run(options: argparse.Namespace, _: Sequence[str]) -> None:
    """Write the tables into all pages."""
    for page in options.pages:
        text = render(page.read_text(encoding="utf-8"))
        with atomic_write(page) as file:
            file.write(text.encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown files with markers")
    sys.exit(run_program("tables", parser.parse_args, run, None))
