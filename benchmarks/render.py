"""Makes tables from records, and puts them into pages between their markers.

A table stands between ``<!-- RECORD TABLE -->`` and ``<!-- end of RECORD TABLE -->``; RECORD is the name of a file in
``records/`` or ``docs/records/`` beside the page, or ``protocol_`` and the name of a plan of ``recipes/sweep.py``.
Where there is no such record, what stands there stays: it is written by hand.

    python benchmarks/render.py README.md docs/*.md
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_rows import BEAMS, DECODING, ENCODING, TRAINING, Case
from growth_schedules import (
    DEEP,
    SCHEDULES,
    limit_of_saving,
    seconds_at,
    share_of_time,
    time_saved,
    time_to_loss,
)
from program import run_program, tell
from record import Record, read_record
from result_tables import NOTHING, Lines, Tables, forms, losses_by_update, results, whole
from turns import quartiles, ratios

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise.tables import markdown


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of a record by name."""
    setup = record["setup"]
    makers: dict[str, Callable[[Record], Tables]] = {
        "bench": _bench, "training_profile": _profile,
        "probe": _probe, "startup_cost": _startup, "growth": _growth, "results": results, "soak": _soak,
        "proxy": forms,
    }  # fmt: skip
    tables: dict[str, str] = {"setup": _setup(record)}
    for name, lines in makers.get(setup["program"], lambda _: iter(()))(record):
        if len(lines) <= 1:  # no more than the columns' names
            continue
        tables[name] = lines if isinstance(lines, str) else markdown(_without_empty_columns(lines))
    return tables


def _without_empty_columns(lines: Lines) -> Lines:
    used = [column for column, cells in enumerate(zip(*lines, strict=True)) if set(cells[1:]) != {NOTHING}]
    return [[line[column] for column in used] for line in lines]


def _setup(record: Record) -> str:
    setup = record["setup"]
    lines = [f"- Made by `{setup['command']}`."]
    lines += [f"- Machine: {setup['machine']}; device {setup['device']}; threads of PyTorch: {setup['threads']}."]
    lines += [f"- Versions: {setup['versions']}."]
    if "text" in record:
        text = record["text"]
        lines += [
            f"- Text: `$CORPORA/{text['corpus']}`, {text['languages']}; {text['train']:,} pairs to train, "
            f"{text['valid']:,} to validate, {text['test']:,} to test; {text['merges']} subword merges, joined "
            f"dictionary of {text['dictionary']:,}."
        ]
    return "\n".join([*lines, ""])


def _ratio(values: Sequence[float], form: str = ".2f") -> str:
    """Return the median, and the quartiles in brackets."""
    low, middle, high = quartiles(values)
    return f"**{middle:{form}}** ({low:{form}} - {high:{form}})"


# --- bench --------------------------------------------------------------------------------------------------------


def rates(record: Record, row: str, precision: str, case: Case) -> list[float]:
    """Return target tokens or sentences per second in each round, of all meetings."""
    return [rate for meeting in _meetings(record, precision, case, row) for rate in _rates(meeting[row])]


def versus(record: Record, row: str, other: str, precision: str, case: Case) -> list[float]:
    """Return how many times as fast as another row, round by round where both took turns."""
    meetings = _meetings(record, precision, case, row, other)
    return [ratio for meeting in meetings for ratio in ratios(_rates(meeting[row]), _rates(meeting[other]))]


def peak(record: Record, row: str, precision: str, part: str) -> float | None:
    """Return the bytes at the peak, without those of stock fairseq's unused copies; the median of all processes."""
    values = [
        memory["peak"] - memory["unused"]
        for memory in record["memory"]
        if (memory["row"], memory["precision"], memory["part"]) == (row, precision, part)
    ]
    return statistics.median(values) if values else None


def start_up(record: Record, row: str, precision: str) -> float | None:
    """Return the median of the seconds of all starts."""
    starts = record["start_up"]
    values = [start["seconds"] for start in starts if (start["row"], start["precision"]) == (row, precision)]
    return statistics.median(values) if values else None


def _meetings(record: Record, precision: str, case: Case, *rows: str) -> Iterator[Mapping[str, Any]]:
    for meeting in record["meetings"]:
        if meeting["precision"] == precision and Case(**meeting["case"]) == case and meeting["rows"].keys() >= {*rows}:
            yield meeting["rows"]


def _rates(answers: Mapping[str, Sequence[float]]) -> list[float]:
    return ratios(answers["amount"], answers["seconds"])


def _bench(record: Record) -> Tables:
    setup = record["setup"]
    for precision in setup["precisions"]:
        suffix = f"_{precision}" if len(setup["precisions"]) > 1 else ""
        yield f"speed{suffix}", _speed_table(record, precision, _cases(record))
        for part, template in ((TRAINING, Case(TRAINING)), (DECODING, _cases(record)[len(setup["sentences"])])):
            by_length = [replace(template, length=length) for length in setup["lengths"]]
            yield f"{part}_by_length{suffix}", _speed_table(record, precision, by_length)
        yield f"size{suffix}", _size_table(record, precision)
        variants = _variants_table(record, precision)
        if len(variants) > 1:
            yield f"variants{suffix}", variants
    yield (
        "skipped",
        "".join(
            f"- {skipped['row']}, {skipped['part']} {skipped['precision']}: {skipped['reason']}\n"
            for skipped in record["skipped"]
        ),
    )


def _cases(record: Record) -> list[Case]:
    sentences = record["setup"]["sentences"]
    return [Case(TRAINING), *(Case(DECODING, beam=beam, sentences=number) for beam in BEAMS for number in sentences)]


def _titles(cases: Sequence[Case]) -> list[str]:
    return [str(case).removeprefix("decoding, ") for case in cases]


def _speed_table(record: Record, precision: str, cases: Sequence[Case]) -> Lines:
    lines = [["row", "compared with", *_titles(cases)]]
    for row in record["rows"]:
        cells = [_speed(record, row, precision, case) for case in cases]
        if any(cell != NOTHING for cell in cells):
            lines.append([row, _compared(record, row), *cells])
    return lines


def _compared(record: Record, row: str) -> str:
    stock = str(record["rows"][row]["beside"])
    return "" if stock == row else stock


def _speed(record: Record, row: str, precision: str, case: Case) -> str:
    values = rates(record, row, precision, case)
    if not values:
        return NOTHING
    rate = statistics.median(values)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if not _compared(record, row):
        low, _, high = quartiles(values)
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    times = versus(record, row, record["rows"][row]["beside"], precision, case)
    return f"{shown}, {_ratio(times)}" if times else shown


def _variants_table(record: Record, precision: str) -> Lines:
    """Compare rows such as "mute 4, loop" with the row without the last word: times as fast, by turns."""
    sentences = record["setup"]["sentences"]
    cases = [*_cases(record), *(Case(ENCODING, sentences=number) for number in sentences)]
    lines = [["row", "compared with", *_titles(cases)]]
    for row in record["rows"]:
        base = row.rpartition(", ")[0]
        if base in record["rows"]:
            times = [versus(record, row, base, precision, case) for case in cases]
            lines.append([row, base, *(_ratio(values) if values else NOTHING for values in times)])
    return lines


def _size_table(record: Record, precision: str) -> Lines:
    rows = record["rows"]

    def mebibytes(part: str) -> Callable[[str], float | None]:
        return lambda row: None if (value := peak(record, row, precision, part)) is None else value / 2**20

    columns: dict[str, tuple[Callable[[str], float | None], str]] = {
        "parameters": (lambda row: rows[row]["parameters"] if row in rows else None, "{:,}"),
        "training peak, MiB": (mebibytes(TRAINING), "{:.0f}"),
        "decoding peak, MiB": (mebibytes(DECODING), "{:.0f}"),
        "start-up, s": (lambda row: start_up(record, row, precision), "{:.2f}"),
    }
    lines = [["row", "compared with", *columns]]
    for row, about in rows.items():
        cells = []
        for amount_of, form in columns.values():
            own, other = amount_of(row), amount_of(about["beside"])
            share = f" ({own / other:.2f})" if own is not None and other and _compared(record, row) else ""
            cells.append(NOTHING if own is None else form.format(own) + share)
        lines.append([row, _compared(record, row), *cells])
    return lines


# --- programs of one table ----------------------------------------------------------------------------------------


def _profile(record: Record) -> Tables:
    for precision in dict.fromkeys(result["precision"] for result in record["results"]):
        sides = {result["side"]: result for result in record["results"] if result["precision"] == precision}
        lines = [["% of a step", *sides]]
        for kind in next(iter(sides.values()))["kinds"]:
            shares = (side["kinds"][kind] / sum(side["kinds"].values()) for side in sides.values())
            lines.append([kind, *(f"{100 * share:.1f}" for share in shares)])
        updates = {name: side["updates"] for name, side in sides.items()}
        lines.append(["ms an update", *(f"{1000 * statistics.median(values):.0f}" for values in updates.values())])
        gains = {name: ratios(updates[f"{name} before"], updates[name]) for name in sides if f"{name} before" in sides}
        lines.append(["times as fast as before", *(_ratio(gains[name]) if name in gains else "" for name in sides)])
        yield precision, lines


def _probe(record: Record) -> Tables:
    lines = [["model", "layers", "forward pass, s", "fit, s", "fit by forward pass", "solving, s"]]
    for result in record["results"]:
        forward, fit = result["seconds"]["forward pass"], result["seconds"]["fit"]
        medians = [f"{statistics.median(values):.3f}" for values in (forward, fit)]
        solving = f"{result['solving']:.2f} for {result['fits']} fits"
        lines.append([result["name"], str(result["layers"]), *medians, _ratio(ratios(fit, forward)), solving])
    yield "fit", lines


def _soak(record: Record) -> Tables:
    outcomes = record["outcomes"]
    lines = [["what is attacked", "attacks", *outcomes]]
    lines += [
        [name, f"{sum(counts.values()):,}", *(f"{counts.get(outcome, 0):,}" for outcome in outcomes)]
        for name, counts in record["counts"].items()
    ]
    yield "counts", lines
    yield "kinds", "\n".join(f"- {name}: {', '.join(kinds)}." for name, kinds in record["kinds"].items()) + "\n"


def _startup(record: Record) -> Tables:
    lines = [["environment", "median ms", "quartiles", "fastest", "compared with no hook", "quartiles"]]
    starts = record["milliseconds"]
    plain = next(iter(starts.values()))
    for name, times in starts.items():
        low, middle, high = quartiles(times)
        cells = [name, f"{middle:.2f}", f"{low:.2f} - {high:.2f}", f"{min(times):.2f}"]
        low, middle, high = quartiles([own - other for own, other in zip(times, plain, strict=True)])
        lines.append([*cells, *(("", "") if times is plain else (f"{middle:+.2f}", f"{low:+.2f} - {high:+.2f}"))])
    yield "starts", lines
    import_cost = f"{record['import_microseconds']:.2f} microseconds"
    yield "import", f"Each later import of a module that is not patched takes {import_cost} longer.\n"


# --- growth -------------------------------------------------------------------------------------------------------


def _growth(record: Record) -> Tables:
    part = record["setup"]["part"]
    yield from {"saving": _saving, "time-to-loss": _loss}[part](record)


def _saving(record: Record) -> Tables:
    rounds, lengths = record["rounds"], whole(record["lengths"])
    steps = [whole(measured["steps"]) for measured in rounds]
    deepest = max(lengths)
    shares = [
        {layers: statistics.median(ratios(taken[layers], taken[deepest])) for layers in lengths} for taken in steps
    ]
    saved = [1 - share_of_time(lengths, measured["staged"], measured["deep"]) for measured in rounds]
    predicted = [time_saved(lengths, share) for share in shares]
    lines = [["round", "deep s", "staged s", "saved", "predicted", "difference in points"]]
    for number, (measured, own, expected) in enumerate(zip(rounds, saved, predicted, strict=True), start=1):
        totals = [f"{sum(measured[name]):.1f}" for name in ("deep", "staged")]
        lines.append([str(number), *totals, f"{own:.1%}", f"{expected:.1%}", f"{100 * (own - expected):+.1f}"])
    own, expected = statistics.median(saved), statistics.median(predicted)
    lines.append(["median", "", "", f"{own:.1%}", f"{expected:.1%}", f"{100 * (own - expected):+.1f}"])
    lines.append(["encoder layers only", "", "", f"{limit_of_saving(lengths, deepest):.1%}", "", ""])
    yield "rounds", lines
    lines = [["layers", "updates", "step ms, median of the rounds", "of the deepest"]]
    for layers, updates in lengths.items():
        milliseconds = 1000 * statistics.median(statistics.median(taken[layers]) for taken in steps)
        of_deepest = statistics.median(share[layers] for share in shares)
        lines.append([str(layers), str(updates), f"{milliseconds:.0f}", f"{of_deepest:.3f}"])
    yield "steps", lines
    lines = [["layers", "median s", "slowest s"]]
    for before, after in dict.fromkeys((step["before"], step["after"]) for step in record["growth"]):
        seconds = [step["seconds"] for step in record["growth"] if step["before"] == before]
        lines.append([f"{before:.0f} -> {after:.0f}", f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"])
    yield "growth", lines


def _loss(record: Record) -> Tables:
    runs = record["runs"]
    lengths = {name: whole(run["lengths"]) for name, run in runs.items()}
    losses = {name: whole(run["losses"]) for name, run in runs.items()}
    by_depth: dict[int, list[float]] = {}
    for run in runs.values():
        for layers, seconds in whole(run["steps"]).items():
            by_depth.setdefault(layers, []).append(seconds)
    # Every update as long as the median update of its depth: whatever else the machine did meanwhile.
    steps = {layers: statistics.median(values) for layers, values in by_depth.items()}
    last = max(losses[DEEP])
    goal, deep = losses[DEEP][last], seconds_at(last, lengths[DEEP], steps)
    lines = [["schedule", "layers: updates", "training s", "last loss", f"s to {goal:.3f}", "of the deep one's"]]
    for name, curve in losses.items():
        timed = [(seconds_at(update, lengths[name], steps), loss) for update, loss in curve.items()]
        reached = time_to_loss(timed, goal)
        cells = ["not reached", NOTHING] if reached is None else [f"{reached:.0f}", f"{reached / deep:.2f}"]
        stages = ", ".join(f"{layers}: {updates}" for layers, updates in lengths[name].items())
        lines.append([SCHEDULES[name].meaning, stages, f"{timed[-1][0]:.0f}", f"{timed[-1][1]:.3f}", *cells])
    yield "times", lines
    yield "losses", losses_by_update({SCHEDULES[name].meaning: curve for name, curve in losses.items()})


# --- pages --------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(
    r"<!-- (?P<record>[\w-]+) (?P<table>[\w.-]+) -->\n(?P<text>.*?)<!-- end of (?P=record) (?P=table) -->\n", re.DOTALL
)


def render_page(page: Path) -> int:
    """Write the tables of all records that there are into a page; return how many.

    Raises:
        UserError: a record has no such table, or a marker no end.
    """
    below = page.parent / "docs" / "records"
    folder = below if below.is_dir() else page.parent / "records"
    cache: dict[str, dict[str, str] | None] = {}
    count = 0

    def replaced(block: re.Match[str]) -> str:
        nonlocal count
        name, table = block["record"], block["table"]
        if name not in cache:
            cache[name] = _tables_named(folder, name)
        if (made := cache[name]) is None:
            return block[0]
        if table not in made:
            raise UserError(f"{page}: {name}.json has no table {table}; it has {', '.join(made)}")
        count += 1
        return f"<!-- {name} {table} -->\n\n{made[table]}\n<!-- end of {name} {table} -->\n"

    text = page.read_text(encoding="utf-8")
    markers = re.findall(r"^<!-- (end of )?([\w-]+ [\w.-]+) -->$", text, re.MULTILINE)
    for (_, name), (end, other) in zip(markers[::2], [*markers[1::2], ("", "")], strict=False):
        if not end or name != other:
            raise UserError(f"{page}: the marker of {name} has no end before the next one")
    text = _BLOCK.sub(replaced, text)
    with atomic_write(page) as file:
        file.write(text.encode())
    return count


def _tables_named(folder: Path, name: str) -> dict[str, str] | None:
    """Return the tables of a record, None where there is none."""
    import sweep  # bench_rows has put the folder on the path

    plan = sweep.PLANS / f"{name.removeprefix('protocol_')}.toml"
    if name.startswith("protocol_") and plan.exists():
        return sweep.tables_of(sweep.Plan(plan, sweep.RESULTS))
    record = read_record(folder, name)
    return None if record is None else tables_of(record)


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="Markdown files with markers")
    return parser.parse_args(given)


def run(options: argparse.Namespace, _: Sequence[str]) -> None:
    """Render all pages."""
    for page in options.pages:
        tell(f"{page}: {render_page(page)} tables")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("render", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
