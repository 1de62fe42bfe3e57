"""The report of training runs: their summary, and one self-contained HTML page without scripts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from html import escape
from string import Template
from typing import Any

from fairseq_depthwise.figures import MARKERS, style_of
from fairseq_depthwise.reports.charts import charts_of
from fairseq_depthwise.reports.training_hours import share_saved, training_time, why_not_comparable
from fairseq_depthwise.reports.training_log import Run, Series
from fairseq_depthwise.tables import shown

#: Options that name the files of a run, which differ in all runs.
_PATHS = ("--save-dir", "--restore-file", "--tensorboard-logdir", "--log-file")
#: Text that looks like matplotlib's markers.
_MARKS = dict(zip(MARKERS, "●■▲◆▼✚✖", strict=True))
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: white; font: 1rem/1.5 system-ui, sans-serif; }
h3 { font-size: 1rem; margin: 0; }
ul { list-style: none; padding: 0; }
div { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { padding: .25rem 2rem .25rem 0; text-align: left; border-bottom: 1px solid lightgray; }
th { font-weight: 400; }
tr:first-child { font-weight: 700; }
section { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; break-inside: avoid; }
svg { width: 100%; height: auto; }
</style>
</head>
<body>
<h1>$title</h1>
$tables
<p>The table has the best loss, in bits, and the best BLEU of the validation set. Thin lines: training, beside
validation with markers. Bands: one standard deviation. Dashed: growth to that many layers. Hours: of all GPUs, or of
all processes on a CPU, in training steps; saved: of the first run's hours.</p>
<ul>$legend</ul>
$charts
</body>
</html>
""")


def summarize(run: Run, first: Run | None = None) -> dict[str, Any]:
    """Return the numbers of a run, losses in bits; None where the log does not have them.

    Hours are compared with those of ``first``, if that is another run.
    """
    loss, ppl = _best(run.of("loss", validation=True), min), run.of("ppl", validation=True)
    perplexities = dict(zip(ppl["updates"], ppl["values"], strict=True))
    grown, speeds = [update for update, *_ in run.growth], _finite(run.of("wps"))
    depths, growing = _finite(run.of("depth")), run.options.get("--growth-side")
    layers = {side: run.options.get(f"--{side}-layers") for side in ("encoder", "decoder")}
    layers |= {side: f"{depths[-1]:.0f}" for side in layers if depths and growing in (side, "both")}
    missing = {name: len(run.of(name)["values"]) - len(_finite(run.of(name))) for name in ("loss", "gnorm")}
    return {
        "architecture": run.options.get("--arch"),
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "grown_after": grown,
        "continued_after": run.continued,
        # Only some logs say how many there are after growth.
        "parameters": run.parameters if run.counted >= max(grown, default=0) else None,
        "updates": run.updates,
        "seconds": run.seconds,
        "time": str(timedelta(seconds=round(run.seconds))),
        **_hours(run, None if first is run else first),
        "words_per_second": statistics.median(speeds) if speeds else None,
        "loss": loss,
        "perplexity": perplexities.get(loss["update"]) if loss else None,
        "bleu": _best(run.of("bleu", validation=True), max),
        "learning_rate": next(reversed(_finite(run.of("lr"))), None),
        "not_finite": {name: count for name, count in missing.items() if count},
    }


def summary_table(names: Sequence[str], runs: Sequence[Run]) -> list[list[str]]:
    """Return a line with the runs' names and one for each number of their summaries that any run has."""
    summaries = [summarize(run, runs[0]) for run in runs]
    lines = [[title.replace("_", " "), *(shown(one[title]) or "-" for one in summaries)] for title in summaries[0]]
    return [["", *names], *(line for line in lines if line[0] != "seconds" and set(line[1:]) != {"-"})]


def _hours(run: Run, first: Run | None) -> dict[str, Any]:
    """Return the hours of training, where, and how many percent of the first run's hours were saved, or why none is."""
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


def _finite(series: Series) -> list[float]:
    return [value for value in series["values"] if math.isfinite(value)]


def _best(series: Series, choose: Callable[[list[float]], float]) -> dict[str, Any] | None:
    """Return the best value of a metric and the update after which it was measured."""
    if not (values := _finite(series)):
        return None
    best = choose(values)
    return {"value": best, "update": int(series["updates"][series["values"].index(best)])}


def make_page(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Return the page as HTML."""
    options = sorted({option for run in runs for option in run.options})
    lines = [[option, *(run.options.get(option, "-") for run in runs)] for option in options]
    differing = [line for line in lines if len(set(line[1:])) > 1 and line[0] not in _PATHS]
    tables = [_table(summary_table(names, runs))]
    for heading, listed in (("Options that differ", differing), ("All options", lines)):
        if listed:
            table = _table([["option", *names], *listed])
            tables.append(f"<details><summary>{heading}: {len(listed)}</summary>{table}</details>")
    styles = map(style_of, range(len(names)))
    marks = (f'<span style="color: {style["color"]}">{_MARKS[style["marker"]]}</span>' for style in styles)
    legend = "".join(f"<li>{mark} {escape(name)}</li>" for mark, name in zip(marks, names, strict=True))
    sections: dict[str, str] = {}
    for section, title, svg in charts_of(runs):
        sections[section] = f"{sections.get(section, '')}<figure><h3>{escape(title)}</h3>{svg}</figure>"
    return _PAGE.substitute(
        title=escape(names[0] if len(names) == 1 else f"{len(names)} training runs"),
        tables="\n".join(tables),
        legend=legend,
        charts="\n".join(f"<h2>{name}</h2><section>{figures}</section>" for name, figures in sections.items()),
    )


def _table(lines: Iterable[Sequence[str]]) -> str:
    """Return a table, which scrolls, also from the keyboard, where the page is narrow; titles are first."""
    rows = (
        f"<th>{escape(title)}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in rest) for title, *rest in lines
    )
    return f'<div tabindex="0"><table><tr>{"</tr><tr>".join(rows)}</tr></table></div>'
