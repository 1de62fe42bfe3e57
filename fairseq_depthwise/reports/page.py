"""The report of training runs: one self-contained HTML page, without scripts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

from fairseq_depthwise.reports.curves import Chart, Curve, Section, sections_of
from fairseq_depthwise.reports.inline_svg import draw_svg, marker_svg
from fairseq_depthwise.reports.logged_config import options_of
from fairseq_depthwise.reports.page_style import style_sheet
from fairseq_depthwise.reports.run_record import RunRecord
from fairseq_depthwise.reports.run_summary import differing_options, summarize_run, table_of

#: Rows of each curve in the table of a figure.
_ROWS = 12


def make_page(names: Sequence[str], runs: Sequence[RunRecord]) -> str:
    """Return the page as HTML."""
    title = names[0] if len(names) == 1 else f"{len(names)} training runs"
    body = [f"<h1>{escape(title)}</h1>", _summary(names, runs), _differences(names, runs), *map(_about, names, runs)]
    if len(names) > 1:
        body.append(_legend(names))
    numbers = itertools.count()
    for section in sections_of(runs):
        figures = [_figure(chart, names, f"f{next(numbers)}") for chart in section.charts]
        body.append(_section(section, figures))
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _summary(names: Sequence[str], runs: Sequence[RunRecord]) -> str:
    rows = table_of([summarize_run(run) for run in runs])
    return _table("Summary", ["", *names], ([title, *cells] for title, cells in rows))


def _differences(names: Sequence[str], runs: Sequence[RunRecord]) -> str:
    rows = differing_options(runs)
    if not rows:
        return ""
    table = _table("", ["option", *names], ([option, *values] for option, values in rows), long=True)
    return f"<details><summary>Options that differ: {len(rows)}</summary>{table}</details>"


def _about(name: str, run: RunRecord) -> str:
    """Return what is known of a run besides its metrics."""
    parts = [f"<h3>{escape(name)}</h3>", f"<p>Read from <code>{escape(run.source)}</code></p>"]
    parts += [f"<p>{escape(note)}</p>" for note in run.notes]
    if run.versions:
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        parts.append(f"<p>Versions, from {escape(run.versions_from or '')}: {escape(versions)}</p>")
    if options := options_of(run.config):
        table = _table("", ["option", "value"], ([option, value] for option, value in options.items()), long=True)
        parts.append(f"<details><summary>Options: {len(options)}</summary>{table}</details>")
    return f'<section class="run">{"".join(parts)}</section>'


def _legend(names: Sequence[str]) -> str:
    items = "".join(f"<li>{marker_svg(run, f'l{run}')}{escape(name)}</li>" for run, name in enumerate(names))
    return f'<ul class="legend" aria-label="Colors and markers of the runs">{items}</ul>'


def _section(section: Section, figures: Sequence[str]) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    return f'<h2>{escape(section.title)}</h2>{text}<div class="figures">{"".join(figures)}</div>'


def _figure(chart: Chart, names: Sequence[str], prefix: str) -> str:
    label = f"{chart.title}. " + " ".join(f"{_named(curve, names)}: {_range(curve)}." for curve in chart.curves)
    notes = [chart.note, "Dashed: the model grew." if chart.boundaries else ""]
    rows = (
        [_named(curve, names), _number(curve.xs[row]), _number(curve.ys[row])]
        for curve in chart.curves
        for row in _some_rows(len(curve.xs))
    )
    table = _table("", ["curve", chart.x, chart.y], rows)
    return (
        f"<figure><h3>{escape(chart.title)}</h3>{draw_svg(chart, prefix, label)}"
        f"<figcaption>{escape(' '.join(note for note in notes if note))}</figcaption>"
        f"<details><summary>Numbers</summary>{table}</details></figure>"
    )


def _named(curve: Curve, names: Sequence[str]) -> str:
    return f"{names[curve.run]}, {curve.what}" if curve.what else names[curve.run]


def _range(curve: Curve) -> str:
    """Describe a curve by its ends and extremes."""
    values = [y for y in curve.ys if math.isfinite(y)]
    first, last, lowest, highest = (_number(y) for y in (values[0], values[-1], min(values), max(values)))
    return f"from {first} to {last}, lowest {lowest}, highest {highest}"


def _some_rows(count: int) -> Iterable[int]:
    """Return the numbers of some rows from first to last, evenly spaced."""
    shown = min(count, _ROWS)
    return (row * (count - 1) // max(1, shown - 1) for row in range(shown))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, long: bool = False) -> str:
    """Return a table whose rows begin with a title; it scrolls in a box of its own if wider than the page."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    cell = '<td class="long">' if long else "<td>"
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>' + "".join(f"{cell}{escape(text)}</td>" for text in cells) + "</tr>"
        for title, *cells in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    # A box that scrolls must be reachable from the keyboard.
    table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'
