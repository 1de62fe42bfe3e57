"""The report of training runs: their summary, and one self-contained HTML page without scripts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from html import escape
from string import Template
from typing import Any

from fairseq_depthwise.figures import style_of
from fairseq_depthwise.reports.charts import KINDS, MARKS, Chart, draw_charts
from fairseq_depthwise.reports.training_hours import share_saved, training_time, why_not_comparable
from fairseq_depthwise.reports.training_log import Run, Series
from fairseq_depthwise.tables import shown

#: Options that name the files of a run: they always differ between runs.
_PATHS = ("--save-dir", "--restore-file", "--tensorboard-logdir", "--log-file")
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --text: #1f2328; --soft: #57606a; --rule: #d0d7de; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --text: #e6edf3; --soft: #9da7b3; --rule: #3d444d; }
}
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1, .legend { overflow-wrap: break-word; }
h3 { font-size: 1rem; margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; list-style: none; margin: 0; padding: 0; font-size: .875rem; }
.legend li { min-width: 0; }
.kind { color: var(--soft); }
div { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { padding: .25rem 1.25rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
th { font-weight: 400; }
tr:first-child { font-weight: 700; }
section { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; break-inside: avoid; }
svg { width: 100%; height: auto; }
.reading { pointer-events: all; }
.reading rect { fill: none; }
.reading path, .reading text { visibility: hidden; pointer-events: none; }
.reading path { stroke: var(--text); stroke-width: .5; }
.reading text { font: 9px system-ui, sans-serif; stroke: var(--page); stroke-width: 3px; paint-order: stroke; }
.reading:hover path, .reading:hover text { visibility: visible; }
</style>
</head>
<body>
<h1>$title</h1>
$tables
<p>The table has the best loss, in bits, and the best BLEU of the validation set. Hours: of all GPUs, or of all
processes on a CPU, in training steps; saved: of the first run's hours. Axes of losses are logarithmic. Point at a
chart to see its values.</p>
$charts
</body>
</html>
""")


def make_page(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Return the page as HTML."""
    lines = _list_options(runs)
    differing = [line for line in lines if len(set(line[1:])) > 1 and line[0] not in _PATHS]
    # The summary is open; the options below it open with a click.
    tables = [_make_table(make_summary_table(names, runs))]
    for heading, listed in (("Options that differ", differing), ("All options", lines)):
        if listed:
            table = _make_table([["option", *names], *listed])
            tables.append(f"<details><summary>{heading}: {len(listed)}</summary>{table}</details>")
    return _PAGE.substitute(
        title=escape(names[0] if len(names) == 1 else f"{len(names)} training runs"),
        tables="\n".join(tables),
        charts=_make_sections(names, runs),
    )


def _list_options(runs: Sequence[Run]) -> list[list[str]]:
    """Return a line for each option, with its value in each run."""
    options: set[str] = set()
    for run in runs:
        options.update(run.options)
    lines = []
    for option in sorted(options):
        lines.append([option, *(run.options.get(option, "-") for run in runs)])
    return lines


def _make_legend(names: Sequence[str], chart: Chart) -> str:
    """Return the runs and the kinds of lines that a chart shows."""
    items = []
    for number in chart.runs:
        style = style_of(number)
        mark = f'<span style="color: {style["color"]}">{MARKS[style["marker"]]}</span>'
        items.append(f"<li>{mark} {escape(names[number])}</li>")
    items += [f'<li class="kind">{KINDS[kind]}</li>' for kind in chart.kinds]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _make_sections(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Return the charts of each section below its heading."""
    # Section -> its figures, in the order of the sections' first charts.
    figures: dict[str, str] = {}
    for chart in draw_charts(runs):
        figure = f"<figure><h3>{escape(chart.title)}</h3>{_make_legend(names, chart)}{chart.svg}</figure>"
        figures[chart.section] = figures.get(chart.section, "") + figure
    sections = [f"<h2>{name}</h2><section>{of_section}</section>" for name, of_section in figures.items()]
    return "\n".join(sections)


def _make_table(lines: Iterable[Sequence[str]]) -> str:
    """Return a table whose lines begin with their titles; in a narrow window it scrolls, even from the keyboard."""
    rows = []
    for title, *cells in lines:
        row = f"<th>{escape(title)}</th>"
        row += "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f"<tr>{row}</tr>")
    return f'<div tabindex="0"><table>{"".join(rows)}</table></div>'


# --- summary ---------------------------------------------------------------------------------------------------------


def make_summary_table(names: Sequence[str], runs: Sequence[Run]) -> list[list[str]]:
    """Return a line with the names of the runs, and a line for each number of their summaries.

    A number that no log has, such as BLEU, has no line.
    """
    summaries = [summarize(run, runs[0]) for run in runs]
    lines = [["", *names]]
    for name in summaries[0]:
        cells = [shown(summary[name]) for summary in summaries]
        if any(cells) and name != "seconds":
            lines.append([name.replace("_", " "), *(cell or "-" for cell in cells)])
    return lines


def summarize(run: Run, first: Run | None = None) -> dict[str, Any]:
    """Return the numbers of a run, losses in bits; None for numbers that the log does not have.

    Hours are compared with those of the run ``first``, if that is another run.
    """
    loss = _find_best(run.get_series("loss", validation=True), min)
    grown_after = [growth.update for growth in run.growth]
    speeds = _select_finite(run.get_series("wps"))
    rates = _select_finite(run.get_series("lr"))
    # Only some logs say how many parameters there are after growth.
    parameters_are_known = run.counted >= max(grown_after, default=0)
    return {
        "architecture": run.options.get("--arch"),
        "encoder_layers": _read_depth(run, "encoder"),
        "decoder_layers": _read_depth(run, "decoder"),
        "grown_after": grown_after,
        "continued_after": run.continued,
        "parameters": run.parameters if parameters_are_known else None,
        "updates": run.updates,
        "seconds": run.seconds,
        "time": str(timedelta(seconds=round(run.seconds))),
        **_compare_hours(run, None if first is run else first),
        "words_per_second": statistics.median(speeds) if speeds else None,
        "loss": loss,
        "perplexity": _find_perplexity(run, loss),
        "bleu": _find_best(run.get_series("bleu", validation=True), max),
        "peak_learning_rate": max(rates, default=None),
        "not_finite": _count_not_finite(run),
    }


def _read_depth(run: Run, side: str) -> str | None:
    """Return the depth of a side at the end of training."""
    # The options have the depth at the start; the readings, if the side grew, the depth at the end.
    depths = _select_finite(run.get_series("depth"))
    if depths and run.options.get("--growth-side") in (side, "both"):
        return f"{depths[-1]:.0f}"
    return run.options.get(f"--{side}-layers")


def _compare_hours(run: Run, first: Run | None) -> dict[str, Any]:
    """Return the hours, the machine, and the fraction of the first run's hours that was saved, or why it is unknown."""
    time = training_time(run)
    baseline = None if first is None else training_time(first)
    saved: float | None = None
    reason: str | None = None
    if time and baseline:
        saved = share_saved(time, baseline)
        reason = why_not_comparable(time, baseline)
    return {
        "hours": time.hours if time else None,
        "trained_on": time.machine if time else None,
        "percent_saved": None if saved is None else round(100 * saved, 2),
        "hours_not_comparable": reason,
    }


def _find_best(series: Series, choose: Callable[[list[float]], float]) -> dict[str, Any] | None:
    """Return the best value of a metric and the update after which it was measured."""
    values = _select_finite(series)
    if not values:
        return None
    best = choose(values)
    return {"value": best, "update": int(series["updates"][series["values"].index(best)])}


def _find_perplexity(run: Run, loss: dict[str, Any] | None) -> float | None:
    """Return the perplexity of the validation with the best loss."""
    if loss is None:
        return None
    series = run.get_series("ppl", validation=True)
    by_update = dict(zip(series["updates"], series["values"], strict=True))
    return by_update.get(loss["update"])


def _count_not_finite(run: Run) -> dict[str, int]:
    """Return the numbers of losses and gradient norms that are not finite, without zeros."""
    counts = {}
    for name in ("loss", "gnorm"):
        series = run.get_series(name)
        count = len(series["values"]) - len(_select_finite(series))
        if count:
            counts[name] = count
    return counts


def _select_finite(series: Series) -> list[float]:
    return [value for value in series["values"] if math.isfinite(value)]
