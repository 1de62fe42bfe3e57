"""Figures of a sweep: learning curves by update and by time, and scores beside what they cost."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from operator import truediv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep_numbers import score_of, seeds_of
from sweep_plan import SYSTEMS, Record

from fairseq_compat import UserError
from fairseq_depthwise.figures import COLORS, MARKERS, require_matplotlib, write_figure
from recipes import RECIPES, system_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Record of ``benchmarks/bench.py --rows protocol``, in the same folder as the sweep's.
DECODING = "protocol_cpu.json"

#: Of its cases: what is closest to the evaluation of a test set.
BEAM, SENTENCES = 4, 32

#: The first part of warm-up is left out of curves, where losses are many times those of the end.
FROM_UPDATE = 600

#: System -> its color, line and marker, the same in all figures; no two are alike.
STYLES = {
    system: (COLORS[index % len(COLORS)], ("-", "--", ":")[index // len(COLORS)], MARKERS[(index + index // 7) % 7])
    for index, system in enumerate(SYSTEMS)
}


def write_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw the figures of every record with scores into a folder, ``sweep_RECIPE_curves.svg`` and ``_scores.svg``.

    Raises:
        UserError: matplotlib is missing, or a file cannot be written.
    """
    require_matplotlib("--figures")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--figures {folder} cannot be made ({error.strerror}); give a folder") from error
    for record in records:
        scored = {system: list(seeds.values()) for system in SYSTEMS if (seeds := seeds_of(record, system))}
        if not scored:
            continue
        speeds = decoding_speeds(record.path.parent / DECODING)
        name = f"sweep_{record.content['recipe']}"
        write_figure(str(folder / f"{name}_curves.svg"), (10, 4.5), lambda figure: _curves(figure, record, scored))  # noqa: B023  # drawn at once
        write_figure(
            str(folder / f"{name}_scores.svg"),
            (10, 4.5),
            lambda figure: _scores(figure, record, scored, speeds),  # noqa: B023  # drawn at once
        )


def decoding_speeds(path: Path) -> dict[str, list[float]]:
    """Return system -> sentences a second, times the first system's, of each round.

    Returns:
        nothing where it was not measured.

    Raises:
        UserError: the file is not such a record.
    """
    if not path.exists():
        return {}
    case = {"part": "decoding", "beam": BEAM, "sentences": SENTENCES, "length": 0}
    speeds: dict[str, list[float]] = {}
    try:
        for meeting in json.loads(path.read_text(encoding="utf-8"))["meetings"]:
            if case.items() <= meeting["case"].items():
                first = meeting["rows"][SYSTEMS[0]]["seconds"]  # all decode the same sentences
                for name, row in meeting["rows"].items():
                    speeds[name] = list(map(truediv, first, row["seconds"]))
        if not speeds or not all(
            rounds and all(0 < speed < math.inf for speed in rounds) for rounds in speeds.values()
        ):
            raise ValueError("no speeds")
    except (OSError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no record of bench.py --rows protocol ({error!r})") from error
    return speeds


def _curves(figure: Figure, record: Record, scored: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    by_update, by_time = figure.subplots(1, 2, sharey=True)
    grows = [name for name in scored if system_of(record.content["recipe"], name).stages]
    for system, results in scored.items():
        color, line, _ = STYLES[system]
        style = {"color": color, "linestyle": line}
        curves = [dict(result["curve"]) for result in results]
        updates = [update for update in curves[0] if update >= FROM_UPDATE and all(update in curve for curve in curves)]
        losses = [statistics.fmean(curve[update] for curve in curves) for update in updates]
        by_update.plot(updates, losses, label=system, **style)
        if system not in grows:  # its updates do not all take the same time
            minutes = statistics.fmean(result["cpu_seconds"] / result["updates"] for result in results) / 60
            by_time.plot([update * minutes for update in updates], losses, **style)
    by_update.set(xlabel="updates", ylabel="validation loss, bits a token")
    by_time.set(xlabel="minutes of processor time" + f" (without {', '.join(grows)})" * bool(grows))
    for axes in (by_update, by_time):
        axes.grid(visible=True)
    figure.legend(loc="outside right center", fontsize="small", frameon=False)


def _scores(
    figure: Figure,
    record: Record,
    scored: Mapping[str, Sequence[dict[str, Any]]],
    speeds: Mapping[str, Sequence[float]],
) -> None:
    costs: dict[str, dict[str, Sequence[float]]] = {
        "minutes of processor time to train": {
            system: [result["cpu_seconds"] / 60 for result in results] for system, results in scored.items()
        },
        "million parameters": {system: [results[0]["parameters"] / 1e6] for system, results in scored.items()},
        **({f"decoding speed, times {SYSTEMS[0]}": dict(speeds)} if speeds else {}),
    }
    panels: list[Axes] = list(figure.subplots(1, len(costs), sharey=True, squeeze=False)[0])
    for axes, (label, cost) in zip(panels, costs.items(), strict=True):
        for system, results in scored.items():
            color, _, marker = STYLES[system]
            scores = [score_of(record, result) for result in results]
            values = cost.get(system, [math.nan])  # which is not drawn
            axes.errorbar(
                statistics.median(values),
                statistics.fmean(scores),
                xerr=_to_quartiles(values),
                yerr=statistics.stdev(scores) if len(scores) > 1 else None,
                color=color,
                marker=marker,
                linestyle="none",
                capsize=3,
                label=system if axes is panels[0] else None,
            )
        axes.set(xlabel=label)
        axes.grid(visible=True)
    panels[0].set(ylabel=RECIPES[record.content["recipe"]].metrics[0])
    figure.legend(loc="outside right center", fontsize="small", frameon=False)


def _to_quartiles(values: Sequence[float]) -> list[list[float]] | None:
    """Return how far the quartiles of values are from their median, below and above."""
    if len(values) < 2:
        return None
    low, middle, high = statistics.quantiles(values, method="inclusive")
    return [[middle - low], [high - middle]]
