"""The charts of a report: which metrics, over which axis, and with how many points. Nothing is drawn here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairseq_depthwise.reports.run_record import EPOCH, INNER, RunRecord, Series

#: Points of a curve: about one for each pixel of a figure.
POINTS = 500

#: Metrics with charts of their own, or that follow from others; the remaining ones are auxiliary losses of models.
_KNOWN = (
    *("loss", "nll_loss", "ppl", "bleu", "lr", "peak_lr", "stage", "depth", "gnorm", "clip", "loss_scale"),
    *("wps", "ups", "wpb", "bsz", "train_wall", "wall", "gb_free", "accuracy", "n_correct", "total"),
)
_IGNORED = re.compile(r"(best|cuda|lr)_|.*_deviation$")
#: ``permutation_penalty_2`` and ``encoder_forget_gate_layer2``, of two cells in a layer ``_layer2a``.
_OF_LAYER = re.compile(r"(?P<base>\w+?)_(?:layer)?(?P<layer>\d{1,9}[ab]?)$")
_GATE = re.compile(r"(?P<side>encoder|decoder)_(?P<what>\w+_gate|cell_norm)$")

Axis = Literal["updates", "time"]
Style = Literal["line", "points", "steps"]


@dataclass
class Curve:
    """A line of a chart; nan is a gap.

    Attributes:
        run: index of the run among all runs, which decides color and marker.
        what: which of a run's curves it is; empty if there is one.
        xs, ys: points.
        lows, highs: limits of a band around the line; empty without one.
        style: a thin "line", "points" with markers, or "steps".
    """

    run: int
    what: str
    xs: list[float]
    ys: list[float]
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    style: Style = "line"

    def add_band(self, widths: Sequence[float]) -> None:
        """Put a band of these widths below and above the line, if there is one for each point."""
        if len(widths) == len(self.ys):
            self.lows = [y - width for y, width in zip(self.ys, widths, strict=True)]
            self.highs = [y + width for y, width in zip(self.ys, widths, strict=True)]


@dataclass
class Chart:
    """A chart.

    Attributes:
        title: above it.
        x, y: labels of the axes, with units.
        curves: lines.
        boundaries: index of a run, and where on the x axis its model grew.
        note: explains lines and bands.
    """

    title: str
    x: str
    y: str
    curves: list[Curve]
    boundaries: list[tuple[int, float]] = field(default_factory=list)
    note: str = ""


@dataclass
class Section:
    """Charts under one heading."""

    title: str
    charts: list[Chart]
    text: str = ""


def sections_of(runs: Sequence[RunRecord]) -> list[Section]:
    """Return the charts of all metrics that the runs have."""
    return [section for section in _Charts(runs).sections() if section.charts]


def thinned(values: Sequence[float], *, last: bool = False, points: int = POINTS) -> list[float]:
    """Return the mean, or the ``last`` value, of windows of equal size; nan where a value is not finite."""
    size = max(1, math.ceil(len(values) / points))
    windows = [values[start : start + size] for start in range(0, len(values), size)]
    return [
        (window[-1] if last else math.fsum(window) / len(window)) if all(map(math.isfinite, window)) else math.nan
        for window in windows
    ]


def unit_of_time(longest: float) -> tuple[str, float]:
    """Return the unit for a time axis of so many seconds, and the unit's seconds."""
    return ("hours", 3600.0) if longest > 10800 else ("minutes", 60.0) if longest > 120 else ("seconds", 1.0)


class _Charts:
    """Makes the charts of some runs."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.runs = runs
        every = [series for run in runs for split in run.series.values() for series in split.values()]
        longest = max((seconds for series in every for seconds in series.seconds if seconds is not None), default=None)
        self.axes: tuple[Axis, ...] = ("updates",) if longest is None else ("updates", "time")
        self.unit, self.unit_seconds = unit_of_time(longest or 0.0)

    def sections(self) -> list[Section]:
        losses, bleu = [], []
        for metric, title in (("loss", "Loss"), ("nll_loss", "Loss without smoothing and penalties")):
            for axis in self.axes:
                losses += self._training_and_validation(metric, title, axis)
        for axis in self.axes:
            bleu += self._chart("BLEU", "BLEU", axis, self._curves("bleu", axis, validation=True))
        rate_and_depth = [
            *self._of_training("lr", "Learning rate", "learning rate"),
            *self._of_training("depth", "Depth", "layers", "steps"),
        ]
        work = [
            *self._of_training("gnorm", "Norm of the gradient", "L2 norm"),
            *self._of_training("loss_scale", "Loss scale of half precision", "factor", "steps"),
            *self._of_training("wps", "Speed", "target tokens per second"),
        ]
        units = "fairseq logs losses to base 2: bits, not nats. Time includes validation and saving."
        return [
            Section("Loss", losses, units),
            Section("BLEU", bleu, "Of the validation set, as --eval-bleu computes it."),
            Section("Learning rate and depth", rate_and_depth),
            Section("Gates and cell states", self._gates()),
            Section("Auxiliary losses", self._auxiliary()),
            Section("Gradient and speed", work),
        ]

    def _training_and_validation(self, metric: str, title: str, axis: Axis) -> list[Chart]:
        training = self._curves(metric, axis, what="training")
        validation = self._curves(metric, axis, validation=True, what="validation")
        note = "Thin: training; with markers: validation." if training and validation else ""
        by_sentence = {bool((run.config.get("optimization") or {}).get("sentence_avg")) for run in self.runs}
        unit = "bits per " + " or ".join("sentence" if value else "token" for value in sorted(by_sentence))
        return self._chart(title, unit, axis, training + validation, note)

    def _of_training(self, metric: str, title: str, unit: str, style: Style = "line") -> list[Chart]:
        return self._chart(title, unit, "updates", self._curves(metric, "updates", style=style))

    def _gates(self) -> list[Chart]:
        """Return each gate over updates with its deviation, and layer by layer at the end."""
        charts: list[Chart] = []
        for metric in self._metrics():
            if not (match := _GATE.match(metric)):
                continue
            title = f"{match['what'].replace('_', ' ').capitalize()} of the {match['side']}"
            unit = "mean length" if match["what"] == "cell_norm" else "mean value"
            curves = self._curves(metric, "updates")
            for curve in curves:
                if (deviation := self.runs[curve.run].of_training(f"{metric}_deviation")) is not None:
                    curve.add_band(thinned(deviation.values))
            banded = any(curve.lows for curve in curves)
            note = "Mean of all layers; band: one standard deviation of the values." if banded else ""
            charts += self._chart(title, unit, "updates", curves, note)
            charts += self._by_layer(metric, title, unit)
        return charts

    def _by_layer(self, metric: str, title: str, unit: str) -> list[Chart]:
        curves = []
        two_cells = False
        for index, run in enumerate(self.runs):
            layers = _layers_of(run, metric)
            two_cells |= any(layer.endswith("b") for layer in layers)
            ys = [series.values[-1] for series in layers.values()]
            if any(map(math.isfinite, ys)):
                curve = Curve(index, "", list(map(float, range(1, len(ys) + 1))), ys, style="points")
                curve.add_band([series.values[-1] for series in _layers_of(run, f"{metric}_deviation").values()])
                curves.append(curve)
        if not curves:
            return []
        note = "Band: one standard deviation of the values." if any(curve.lows for curve in curves) else ""
        x = "cells of the layers, lowest first" if two_cells else "layer"
        return [Chart(f"{title} by layer, at the end", x, unit, curves, note=note)]

    def _auxiliary(self) -> list[Chart]:
        """Return the metrics that no other chart has; those of single layers together."""
        charts = []
        for metric in self._metrics():
            if metric in _KNOWN or _IGNORED.match(metric) or _GATE.match(metric):
                continue
            curves = self._curves(metric, "updates")
            for index, run in enumerate(self.runs):
                if layers := _layers_of(run, metric):
                    curves.append(_mean_of_layers(index, list(layers.values())))
            banded = any(curve.lows for curve in curves)
            note = "Mean of the layers; band: from the lowest to the highest layer." if banded else ""
            charts += self._chart(metric.replace("_", " ").capitalize(), "value", "updates", curves, note)
        return charts

    def _metrics(self) -> list[str]:
        """Return the names of the training metrics, those of layers once."""
        names = [
            match["base"] if (match := _OF_LAYER.match(metric)) else metric
            for run in self.runs
            for split in (INNER, EPOCH)
            for metric in run.series.get(split, {})
        ]
        return list(dict.fromkeys(names))

    def _curves(
        self, metric: str, axis: Axis, *, validation: bool = False, what: str = "", style: Style = "line"
    ) -> list[Curve]:
        """Return the curves of a metric, of all runs that have it."""
        curves = []
        for index, run in enumerate(self.runs):
            series = run.of_validation(metric) if validation else run.of_training(metric)
            if series is None:
                continue
            if axis == "updates":
                points = [(float(x), y) for x, y in zip(series.updates, series.values, strict=True)]
            else:
                timed = zip(series.seconds, series.values, strict=True)
                points = [(x / self.unit_seconds, y) for x, y in timed if x is not None]
            last = style == "steps"
            xs, ys = (thinned([point[number] for point in points], last=last) for number in (0, 1))
            curves.append(Curve(index, what, xs, ys, style="points" if validation else style))
        return curves

    def _chart(self, title: str, y: str, axis: Axis, curves: list[Curve], note: str = "") -> list[Chart]:
        """Return a chart over updates or time, or nothing if it has no finite point."""
        curves = [curve for curve in curves if any(map(math.isfinite, curve.ys))]
        if not curves:
            return []
        boundaries = []
        for index in sorted({curve.run for curve in curves}):
            for update in self.runs[index].grown:
                seconds = _seconds_until(self.runs[index], update)
                if axis == "updates":
                    boundaries.append((index, float(update)))
                elif seconds is not None:
                    boundaries.append((index, seconds / self.unit_seconds))
        x = "updates" if axis == "updates" else f"{self.unit} of training"
        return [Chart(f"{title} over {axis}", x, y, curves, boundaries, note)]


def _mean_of_layers(run: int, layers: list[Series]) -> Curve:
    """Return the mean of the layers at each update, in a band from the lowest to the highest layer."""
    longest = max(layers, key=lambda series: len(series.values))  # layers that were grown later have fewer values
    values = [dict(zip(series.updates, series.values, strict=True)) for series in layers]
    rows = [[layer[update] for layer in values if update in layer] for update in longest.updates]
    xs = thinned(list(map(float, longest.updates)))
    ys = thinned([math.fsum(row) / len(row) for row in rows])
    return Curve(run, "", xs, ys, lows=thinned(list(map(min, rows))), highs=thinned(list(map(max, rows))))


def _layers_of(run: RunRecord, metric: str) -> dict[str, Series]:
    """Return layer -> the metric's values there, in the order of layers."""
    layers = {}
    for split in (EPOCH, INNER):
        for name, series in run.series.get(split, {}).items():
            if (match := _OF_LAYER.match(name)) and match["base"] == metric:
                layers[match["layer"]] = series
    return dict(sorted(layers.items(), key=lambda item: (int(item[0].rstrip("ab")), item[0])))


def _seconds_until(run: RunRecord, update: int) -> float | None:
    """Return the seconds of training until an update, as far as they are known."""
    for split in (INNER, EPOCH):
        for series in run.series.get(split, {}).values():
            known = [seconds for at, seconds in zip(series.updates, series.seconds, strict=True) if at <= update]
            return known[-1] if known else None
    return None
