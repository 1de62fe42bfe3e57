"""Summaries of runs: best scores, length, time, speed; and all metrics as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_depthwise.reports.logged_config import options_of
from fairseq_depthwise.reports.run_record import RunRecord, Series

#: Options that name the files of a run, which differ in all runs.
_PATHS = ("--save-dir", "--restore-file", "--tensorboard-logdir", "--log-file")


@dataclass(frozen=True)
class Best:
    """A best value and the update after which it was measured."""

    value: float
    update: int


@dataclass(frozen=True)
class RunSummary:
    """The numbers of a run; None where the log does not have them.

    Attributes:
        architecture: as given with ``--arch``.
        encoder_layers, decoder_layers: at the end.
        depth: of a growing stack, at the end; known without the options, too.
        grown_after: updates after which the model became deeper.
        parameters: at the end.
        updates: at the last line.
        seconds: of training, validation and saving included; pauses and repeated work are not.
        words_per_second: median of the target tokens per second.
        loss: the lowest validation loss, in bits for each token.
        perplexity: of that validation.
        bleu: the highest.
        learning_rate: the last.
        not_finite: metrics of training that were nan or infinite -> how often.
    """

    architecture: str | None
    encoder_layers: int | None
    decoder_layers: int | None
    depth: int | None
    grown_after: tuple[int, ...]
    parameters: int | None
    updates: int
    seconds: float | None
    words_per_second: float | None
    loss: Best | None
    perplexity: float | None
    bleu: Best | None
    learning_rate: float | None
    not_finite: dict[str, int]


def summarize_run(run: RunRecord) -> RunSummary:
    """Return the summary of a run."""
    every = [series for split in run.series.values() for series in split.values()]
    model = run.config.get("model")
    model = model if isinstance(model, Mapping) else {}
    loss = _best(run.of_validation("loss"), min)
    speeds = [value for value in _finite(run.of_training("wps")) if value > 0]
    last = _last(run.of_training("depth"))
    depth = None if last is None else int(last)
    task = run.config.get("task")
    grows = task.get("growth_side") if depth is not None and isinstance(task, Mapping) else None
    return RunSummary(
        architecture=None if model.get("_name") is None else str(model["_name"]),
        encoder_layers=depth if grows in ("encoder", "both") else model.get("encoder_layers"),
        decoder_layers=depth if grows in ("decoder", "both") else model.get("decoder_layers"),
        depth=depth,
        grown_after=tuple(run.grown),
        parameters=run.parameters,
        updates=max(series.updates[-1] for series in every),
        seconds=max((seconds for series in every for seconds in series.seconds if seconds is not None), default=None),
        words_per_second=statistics.median(speeds) if speeds else None,
        loss=loss,
        perplexity=None if loss is None else _at(run.of_validation("ppl"), loss.update),
        bleu=_best(run.of_validation("bleu"), max),
        learning_rate=_last(run.of_training("lr")),
        not_finite=_not_finite(run),
    )


def table_of(summaries: Sequence[RunSummary]) -> list[tuple[str, list[str]]]:
    """Return the title of each line and its cell for each run; lines that no run has are left out."""
    columns = [_column(summary) for summary in summaries]
    lines = {title: [column[title] for column in columns] for title in columns[0]}
    return [(title, [cell or "-" for cell in cells]) for title, cells in lines.items() if any(cells)]


def _column(run: RunSummary) -> dict[str, str]:
    return {
        "architecture": run.architecture or "",
        "layers": _layers(run),
        "grown after updates": ", ".join(f"{update:,}" for update in run.grown_after),
        "parameters": _whole(run.parameters),
        "updates": _whole(run.updates),
        "time": "" if run.seconds is None else duration(run.seconds),
        "target tokens per second": _whole(run.words_per_second),
        "best validation loss, bits": _best_text(run.loss, ".3f"),
        "perplexity there": "" if run.perplexity is None else f"{run.perplexity:.2f}",
        "best BLEU": _best_text(run.bleu, ".2f"),
        "last learning rate": "" if run.learning_rate is None else f"{run.learning_rate:.3g}",
        "not finite": ", ".join(f"{metric} {times} x" for metric, times in run.not_finite.items()),
    }


def differing_options(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return options that differ and each run's value; nothing unless the options of all runs are known."""
    options = [options_of(run.config) for run in runs]
    if not all(options):
        return []
    names = dict.fromkeys(name for run in options for name in run if name not in _PATHS)
    rows = [(name, [run.get(name, "-") for run in options]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def as_json(name: str, run: RunRecord) -> dict[str, Any]:
    """Return everything that is known of a run; null for values that are not finite."""
    return {
        "name": name,
        "source": run.source,
        "summary": asdict(summarize_run(run)),
        "command": None,  # logs do not have it
        "options": options_of(run.config),
        "versions": run.versions or None,
        "grown_after": list(run.grown),
        "continued_after": run.continued_at,
        "notes": run.notes,
        "series": {
            split: {
                metric: {
                    "updates": series.updates,
                    "seconds": series.seconds,
                    "values": [value if math.isfinite(value) else None for value in series.values],
                }
                for metric, series in metrics.items()
            }
            for split, metrics in run.series.items()
        },
    }


def duration(seconds: float) -> str:
    """Format seconds: "42 s", "3 min 20 s", "5 h 07 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _finite(series: Series | None) -> list[float]:
    return [] if series is None else [value for value in series.values if math.isfinite(value)]


def _best(series: Series | None, choose: Any) -> Best | None:
    if not (values := _finite(series)) or series is None:
        return None
    value = choose(values)
    return Best(value, series.updates[series.values.index(value)])


def _last(series: Series | None) -> float | None:
    return values[-1] if (values := _finite(series)) else None


def _at(series: Series | None, update: int) -> float | None:
    if series is None or update not in series.updates:
        return None
    value = series.values[series.updates.index(update)]
    return value if math.isfinite(value) else None


def _not_finite(run: RunRecord) -> dict[str, int]:
    training = {metric: run.of_training(metric) for metric in ("loss", "gnorm")}
    counts = {metric: len(series.values) - len(_finite(series)) for metric, series in training.items() if series}
    return {metric: count for metric, count in counts.items() if count}


def _layers(run: RunSummary) -> str:
    if run.encoder_layers is not None and run.decoder_layers is not None:
        return f"{run.encoder_layers} + {run.decoder_layers}"
    return "" if run.depth is None else f"{run.depth} in the growing stack"


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _best_text(best: Best | None, form: str) -> str:
    return "" if best is None else f"{best.value:{form}} after update {best.update:,}"
