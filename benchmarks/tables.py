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
from fairseq_depthwise.tables import markdown, spread

#: A table in lines and cells, or a text.
Table = Sequence[Sequence[str]] | str
NOTHING = "-"


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of a record by name; none where its program is gone."""
    makers: dict[str, Callable[[Record], Mapping[str, Table]]] = {
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
    tables: dict[str, str] = {
        "setup": f"- Made by `{setup['command']}`{f' at commit {commit}' if (commit := setup.get('commit')) else ''}.\n"
        f"- Machine: {setup['machine']}; device {setup['device']}; threads of PyTorch: {setup['threads']}.\n"
        f"- Versions: {setup['versions']}.\n"
    }
    for name, lines in makers[setup["program"]](record).items():
        if len(lines) > 1:  # more than the columns' names
            tables[name] = lines if isinstance(lines, str) else markdown(lines)
    return tables


def speeds(record: Record) -> dict[str, Table]:
    """Return for each precision tables of speed and of size, each beside what a row is compared with.

    Speeds are target tokens or sentences a second; peaks leave out the bytes that stock fairseq never reads.
    """
    tables: dict[str, Table] = {}
    for precision in record["setup"]["precisions"]:
        cases: dict[str, list[dict[str, list[float]]]] = {}
        amounts = {"parameters": {row: [about["parameters"]] for row, about in record["rows"].items()}}
        for meeting in record["meetings"]:
            case = meeting["case"]
            # Earlier programs measured the encoder alone and sentences of one length, too.
            if meeting["precision"] == precision and case["part"] != "encoding" and not case.get("length"):
                title = f"beam {case['beam']}, {case['sentences']} at once" if case["beam"] else case["part"]
                rates = {row: ratios(one["amount"], one["seconds"]) for row, one in meeting["rows"].items()}
                cases.setdefault(title, []).append(rates)
        for one in record["memory"]:
            if one["precision"] == precision:
                column = amounts.setdefault(f"{one['part']} peak, MiB", {})
                column.setdefault(one["row"], []).append((one["peak"] - one["unused"]) / 2**20)
        speed, size = [["row", "compared with", *cases]], [["row", "compared with", *amounts]]
        for row, about in record["rows"].items():
            beside = "" if about["beside"] == row else about["beside"]
            cells = [_rate(rates, row, beside) for rates in cases.values()]
            speed += [[row, beside, *cells]] if set(cells) != {NOTHING} else []
            size.append([row, beside, *(_amount(column, row, beside) for column in amounts.values())])
        suffix = f"_{precision}" if len(record["setup"]["precisions"]) > 1 else ""
        tables |= {f"speed{suffix}": speed, f"size{suffix}": size}
    return tables


def _rate(meetings: Sequence[Mapping[str, Sequence[float]]], row: str, beside: str) -> str:
    own = [rate for rates in meetings for rate in rates.get(row, [])]
    if not own:
        return NOTHING
    low, rate, high = extent(own)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if not beside:
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    # Round by round, where both took turns.
    times = [time for rates in meetings if {row, beside} <= {*rates} for time in ratios(rates[row], rates[beside])]
    if not times:
        return shown
    low, middle, high = extent(times)
    return f"{shown}, **{middle:.2f}** ({low:.2f} - {high:.2f})"


def _amount(column: Mapping[str, Sequence[float]], row: str, beside: str) -> str:
    own, other = (statistics.median(column.get(name, [0])) for name in (row, beside))
    return (f"{own:,.0f}" if own else NOTHING) + (f" ({own / other:.2f})" if own and other else "")


def qualities(record: Record) -> dict[str, Table]:
    """Return BLEU and milliseconds a sentence for each batch size: models are rows and ways of decoding columns."""
    rows = sorted(record["rows"], key=lambda row: row["batch"])
    cells: dict[tuple[str, str], str] = {}
    for row in rows:
        before = cells.get(key := (row["model"], row["way"]))
        cells[key] = (f"{before}, " if before else f"{row['bleu']:.2f}; ") + spread(row["milliseconds"], 2)
    models, ways = (dict.fromkeys(values) for values in zip(*cells, strict=True))
    batches = " and ".join(map(str, dict.fromkeys(row["batch"] for row in rows)))
    lines = [[model, *(cells.get((model, way), NOTHING) for way in ways)] for model in models]
    return {"ways": [[f"sacreBLEU; milliseconds, {batches} at a time", *ways], *lines]}


def soak(record: Record) -> dict[str, Table]:
    """Return the outcomes of the attacks of ``tests/soak``, and their kinds."""
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
