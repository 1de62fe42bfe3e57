"""The report of training runs: their summary, and one self-contained HTML page without scripts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from fairseq_depthwise.figures import COLORS
from fairseq_depthwise.reports.charts import Chart, charts_of, draw_svg, marker_of
from fairseq_depthwise.reports.training_log import Run, Series

#: The lines of a summary; those without a value are left out.
_LINES = {
    "architecture": "{architecture:s}",
    "layers": "{encoder_layers:s} + {decoder_layers:s}",
    "grown after updates": "{grown}",
    "continued after updates": "{continued}",
    "parameters": "{parameters:,}",
    "updates": "{updates:,}",
    "time": "{time}",
    "target tokens per second": "{words_per_second:,.0f}",
    "best validation loss, bits": "{loss[value]:.3f} after update {loss[update]:,}",
    "perplexity there": "{perplexity:.2f}",
    "best BLEU": "{bleu[value]:.2f} after update {bleu[update]:,}",
    "last learning rate": "{learning_rate:.3g}",
    "not finite": "{missing}",
}
#: Options that name the files of a run, which differ in all runs.
_PATHS = ("--save-dir", "--restore-file", "--tensorboard-logdir", "--log-file")
#: Text that looks like matplotlib's markers.
_MARKS = "●■▲◆▼✚✖"
#: Colors on light and on dark: hues of Okabe and Ito's palette, in enough contrast.
_COLORS = {
    "page": ("#ffffff", "#14171b"), "card": ("#f5f6f8", "#1d2126"), "text": ("#16191d", "#e6e8eb"),
    "soft": ("#545b64", "#a3abb5"), "rule": ("#d5d9de", "#3a4149"), "run-0": ("#0072b2", "#3f9fe0"),
    "run-1": ("#d55e00", "#f2803a"), "run-2": ("#008a64", "#1fb886"), "run-3": ("#b8548c", "#dd92bf"),
    "run-4": ("#a87400", "#e6a91e"), "run-5": ("#2f86bb", "#8accf2"), "run-6": ("#16191d", "#e6e8eb"),
}  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; }
p, figcaption, summary { color: var(--soft); margin: .25rem 0; }
table, figcaption, details { font-size: .875rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
td { min-width: 9rem; overflow-wrap: anywhere; }
tbody th { font-weight: 400; color: var(--soft); }
.legend { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .125rem 1.25rem; margin: 1rem 0;
  padding: .5rem 0; list-style: none; background: var(--page); border-bottom: 1px solid var(--rule); }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; padding: .75rem; min-width: 0; background: var(--card); border-radius: .5rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; font-family: system-ui, sans-serif; }
@media print { .legend { position: static; } }
"""


def summarize(run: Run) -> dict[str, Any]:
    """Return the numbers of a run, losses in bits; None where the log does not have them."""
    loss, ppl = _best(run.of("loss", validation=True), min), run.of("ppl", validation=True)
    perplexities = dict(zip(ppl["updates"], ppl["values"], strict=True))
    grown, speeds = [update for update, *_ in run.growth], _finite(run.of("wps"))
    layers = {side: run.options.get(f"--{side}-layers") for side in ("encoder", "decoder")}
    if depths := _finite(run.of("depth")):
        growing = run.options.get("--growth-side", "")
        layers |= {side: f"{depths[-1]:.0f}" for side in layers if growing in (side, "both")}
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
        "words_per_second": statistics.median(speeds) if speeds else None,
        "loss": loss,
        "perplexity": perplexities.get(loss["update"]) if loss else None,
        "bleu": _best(run.of("bleu", validation=True), max),
        "learning_rate": next(reversed(_finite(run.of("lr"))), None),
        "not_finite": {name: count for name, count in missing.items() if count},
    }


def summary_table(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the title of each line and its cell for each run; lines that no run has are left out."""
    summaries = [summarize(run) for run in runs]
    for one in summaries:
        hours, rest = divmod(round(one["seconds"]), 3600)
        one["time"] = f"{hours} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"
        one["grown"] = ", ".join(f"{update:,}" for update in one["grown_after"])
        one["continued"] = ", ".join(f"{update:,}" for update in one["continued_after"])
        one["missing"] = ", ".join(f"{name} {count} x" for name, count in one["not_finite"].items())
    rows = [(title, [_cell(line, one) for one in summaries]) for title, line in _LINES.items()]
    return [(title, [cell or "-" for cell in cells]) for title, cells in rows if any(cells)]


def _cell(line: str, summary: dict[str, Any]) -> str:
    try:
        return line.format(**summary)
    except TypeError:  # of None, which has no digits
        return ""


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
    title = escape(names[0] if len(names) == 1 else f"{len(names)} training runs")
    body = [f"<h1>{title}</h1>", _table(["", *names], summary_table(runs))]
    options = sorted({option for run in runs for option in run.options})
    rows = [(option, [run.options.get(option, "-") for run in runs]) for option in options]
    differing = [(option, cells) for option, cells in rows if len(set(cells)) > 1 and option not in _PATHS]
    for heading, shown in (("Options that differ", differing), ("All options", rows)):
        if shown:
            table = _table(["option", *names], shown)
            body.append(f"<details><summary>{heading}: {len(shown)}</summary>{table}</details>")
    legend = "".join(
        f'<li><span style="color: var(--run-{run % len(COLORS)})">{_MARKS[marker_of(run)]}</span> {escape(name)}</li>'
        for run, name in enumerate(names)
    )
    body.append(f'<ul class="legend">{legend}</ul>' if len(names) > 1 else "")
    charts = list(charts_of(runs))
    for section in dict.fromkeys(chart.section for chart in charts):
        figures = [_figure(chart, names, f"f{n}") for n, chart in enumerate(charts) if chart.section == section]
        body.append(f'<h2>{section}</h2><div class="figures">{"".join(figures)}</div>')
    light, dark = (" ".join(f"--{name}: {pair[theme]};" for name, pair in _COLORS.items()) for theme in (0, 1))
    style = _STYLE.replace("LIGHT", light).replace("DARK", dark)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{''.join(body)}\n</body>\n</html>\n"
    )


def _figure(chart: Chart, names: Sequence[str], prefix: str) -> str:
    label = "; ".join(f"{names[one.run]}, {one.kind}: {one.ys[0]:.4g} to {one.ys[-1]:.4g}" for one in chart.curves)
    notes = [
        ("Thin: training; with markers: validation.", len({curve.kind for curve in chart.curves}) > 1),
        ("Band: one standard deviation.", any(curve.widths for curve in chart.curves)),
        ("Dashed: growth to that many layers.", chart.grown),
    ]
    return (
        f'<figure aria-label="{escape(label)}"><h3>{escape(chart.title)}</h3>{draw_svg(chart, prefix)}'
        f"<figcaption>{' '.join(note for note, holds in notes if holds)}</figcaption></figure>"
    )


def _table(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a table whose rows begin with a title; it scrolls, also from the keyboard, where the page is narrow."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(title)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for title, cells in rows
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
