"""What a page's figures show: which metrics, over what, and with how many points. Nothing is drawn here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fairseq_depthwise.reports.run_record import EPOCH, INNER, RunRecord, Series

#: Points of a curve: about one for each pixel of a figure.
POINTS = 500

#: Metrics with figures of their own, or that follow from others; the rest is what the model adds to its loss.
_KNOWN = (
    *("loss", "nll_loss", "ppl", "bleu", "lr", "peak_lr", "stage", "depth", "gnorm", "clip", "loss_scale"),
    *("wps", "ups", "wpb", "bsz", "train_wall", "wall", "gb_free", "accuracy", "n_correct", "total"),
)
_IGNORED = re.compile(r"(best|cuda|lr)_|.*_deviation$")
#: ``permutation_penalty_2`` and ``encoder_forget_gate_layer2``, of two cells in a layer ``_layer2a``.
_OF_LAYER = re.compile(r"(?P<base>\w+?)_(?:layer)?(?P<layer>\d+[ab]?)$")
_GATE = re.compile(r"(?P<side>encoder|decoder)_(?P<what>\w+_gate|cell_norm)$")

Axis = Literal["updates", "time"]
Style = Literal["line", "points", "steps"]


@dataclass
class Curve:
    """A line of a figure; nan is a gap.

    Attributes:
        run: place of the run among all runs, which decides colour and marker.
        what: which of a run's curves it is; empty where there is one.
        xs, ys: points.
        lows, highs: borders of a band around it, if there is one.
        style: a thin "line", "points" with markers on it, or "steps".
    """

    run: int
    what: str
    xs: list[float]
    ys: list[float]
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    style: Style = "line"


@dataclass
class Chart:
    """A figure.

    Attributes:
        title: above it.
        x, y: what the axes show, with their units.
        curves: lines.
        borders: run, and where on the x axis its model grew.
        note: what the lines and bands are.
    """

    title: str
    x: str
    y: str
    curves: list[Curve]
    borders: list[tuple[int, float]] = field(default_factory=list)
    note: str = ""


@dataclass
class Section:
    """Figures that belong together."""

    title: str
    charts: list[Chart]
    text: str = ""


def sections_of(runs: Sequence[RunRecord]) -> list[Section]:
    """All figures that the runs have something for."""
    return [section for section in _Figures(runs).sections() if section.charts]


def thinned(values: Sequence[float], *, last: bool = False, points: int = POINTS) -> list[float]:
    """Means over windows of equal size, or the ``last`` value of each; what is not finite makes a window nan."""
    size = max(1, math.ceil(len(values) / points))
    windows = [values[start : start + size] for start in range(0, len(values), size)]
    return [
        (window[-1] if last else math.fsum(window) / len(window)) if all(map(math.isfinite, window)) else math.nan
        for window in windows
    ]


def unit_of_time(longest: float) -> tuple[str, float]:
    """The unit for a time axis that is so many seconds long, and the unit's seconds."""
    return ("hours", 3600.0) if longest > 10800 else ("minutes", 60.0) if longest > 120 else ("seconds", 1.0)


class _Figures:
    """Makes the figures of some runs."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.runs = runs
        every = [series for run in runs for split in run.series.values() for series in split.values()]
        longest = max((seconds for series in every for seconds in series.seconds if seconds is not None), default=None)
        self.axes: tuple[Axis, ...] = ("updates",) if longest is None else ("updates", "time")
        self.unit, self.unit_seconds = unit_of_time(longest or 0.0)

    def sections(self) -> list[Section]:
        losses = [
            chart
            for metric, title in (("loss", "Loss"), ("nll_loss", "Loss without smoothing and penalties"))
            for axis in self.axes
            for chart in self._training_and_validation(metric, title, self._unit_of_loss(), axis)
        ]
        bleu = [
            chart
            for axis in self.axes
            for chart in self._chart("BLEU", "BLEU", axis, self._curves("bleu", axis, validation=True))
        ]
        rate_and_depth = [
            *self._of_training("lr", "Learning rate", "learning rate"),
            *self._of_training("depth", "Depth", "layers", "steps"),
        ]
        work = [
            *self._of_training("gnorm", "Norm of the gradient", "L2 norm"),
            *self._of_training("loss_scale", "Loss scale of half precision", "factor", "steps"),
            *self._of_training("wps", "Speed", "target tokens per second"),
        ]
        return [
            Section(
                "Loss",
                losses,
                "fairseq logs losses to base 2: bits, not nats. Time counts from the start of fairseq's trainer, "
                "validation and saving included.",
            ),
            Section("BLEU", bleu, "Of the validation set, as --eval-bleu computes it."),
            Section("Learning rate and depth", rate_and_depth),
            Section("Gates and cell states", self._gates()),
            Section("Losses beside translation", self._others()),
            Section("Gradient and speed", work),
        ]

    def _training_and_validation(self, metric: str, title: str, unit: str, axis: Axis) -> list[Chart]:
        training = self._curves(metric, axis, what="training")
        validation = self._curves(metric, axis, validation=True, what="validation")
        note = "Thin: training; with markers: validation." if training and validation else ""
        return self._chart(title, unit, axis, training + validation, note)

    def _of_training(self, metric: str, title: str, unit: str, style: Style = "line") -> list[Chart]:
        return self._chart(title, unit, "updates", self._curves(metric, "updates", style=style))

    def _gates(self) -> list[Chart]:
        """Each gate over updates with its spread, and layer by layer at the end."""
        charts: list[Chart] = []
        for metric in self._metrics():
            if not (match := _GATE.match(metric)):
                continue
            title = f"{match['what'].replace('_', ' ').capitalize()} of the {match['side']}"
            unit = "mean length" if match["what"] == "cell_norm" else "mean value"
            deviation = f"{metric}_deviation"
            curves = self._curves(metric, "updates")
            for curve in curves:
                spread = self.runs[curve.run].of_training(deviation)
                widths = [] if spread is None else thinned(spread.values)
                if len(widths) == len(curve.ys):
                    curve.lows = [y - width for y, width in zip(curve.ys, widths, strict=True)]
                    curve.highs = [y + width for y, width in zip(curve.ys, widths, strict=True)]
            banded = any(curve.lows for curve in curves)
            note = "Mean of all layers; band: one standard deviation of the values." if banded else ""
            charts += self._chart(title, unit, "updates", curves, note)
            charts += self._by_layer(metric, title, unit)
        return charts

    def _by_layer(self, metric: str, title: str, unit: str) -> list[Chart]:
        curves = []
        two_cells = False
        for place, run in enumerate(self.runs):
            layers = _layers_of(run, metric)
            two_cells |= any(layer.endswith("b") for layer in layers)
            ends = [(number, series.values[-1]) for number, series in enumerate(layers.values(), start=1)]
            if any(math.isfinite(value) for _, value in ends):
                xs, ys = ([float(one[0]) for one in ends], [one[1] for one in ends])
                spread = [series.values[-1] for series in _layers_of(run, f"{metric}_deviation").values()]
                curve = Curve(place, "", xs, ys, style="points")
                if len(spread) == len(ys):
                    curve.lows = [y - width for y, width in zip(ys, spread, strict=True)]
                    curve.highs = [y + width for y, width in zip(ys, spread, strict=True)]
                curves.append(curve)
        if not curves:
            return []
        note = "Band: one standard deviation of the values." if any(curve.lows for curve in curves) else ""
        x = "cells of the layers, from below" if two_cells else "layer"
        return [Chart(f"{title} by layer, at the end", x, unit, curves, note=note)]

    def _others(self) -> list[Chart]:
        """Metrics that nothing else shows; those of single layers together."""
        charts = []
        for metric in self._metrics():
            if metric in _KNOWN or _IGNORED.match(metric) or _GATE.match(metric):
                continue
            curves = self._curves(metric, "updates")
            for place, run in enumerate(self.runs):
                if layers := _layers_of(run, metric):
                    curves.append(self._mean_of_layers(place, list(layers.values())))
            title = metric.replace("_", " ").capitalize()
            banded = any(curve.lows for curve in curves)
            note = "Mean of the layers; band: from the lowest to the highest layer." if banded else ""
            charts += self._chart(title, "value", "updates", curves, note)
        return charts

    def _mean_of_layers(self, place: int, layers: list[Series]) -> Curve:
        # Layers that were grown later have fewer values: the last of all series belong together.
        longest = max(layers, key=lambda series: len(series.values))
        values = [dict(zip(series.updates, series.values, strict=True)) for series in layers]
        together = [[one[update] for one in values if update in one] for update in longest.updates]
        return Curve(
            place,
            "",
            thinned(list(map(float, longest.updates))),
            thinned([math.fsum(row) / len(row) for row in together]),
            lows=thinned([min(row) for row in together]),
            highs=thinned([max(row) for row in together]),
        )

    def _metrics(self) -> list[str]:
        """Names of the metrics of training, those of layers once."""
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
        """A metric of all runs that have it."""
        curves = []
        for place, run in enumerate(self.runs):
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
            curves.append(Curve(place, what, xs, ys, style="points" if validation else style))
        return curves

    def _chart(self, title: str, y: str, axis: Axis, curves: list[Curve], note: str = "") -> list[Chart]:
        """A figure over updates or time, if it has a point."""
        curves = [curve for curve in curves if any(map(math.isfinite, curve.ys))]
        if not curves:
            return []
        borders = [
            (place, border)
            for place in sorted({curve.run for curve in curves})
            for update in self.runs[place].grown
            if (border := self._place_on(axis, self.runs[place], update)) is not None
        ]
        x = "updates" if axis == "updates" else f"{self.unit} of training"
        return [Chart(f"{title} over {axis}", x, y, curves, borders, note)]

    def _place_on(self, axis: Axis, run: RunRecord, update: int) -> float | None:
        """Where an axis has the end of an update."""
        if axis == "updates":
            return float(update)
        seconds = _seconds_behind(run, update)
        return None if seconds is None else seconds / self.unit_seconds

    def _unit_of_loss(self) -> str:
        by_sentence = {bool((run.config.get("optimization") or {}).get("sentence_avg")) for run in self.runs}
        return "bits per " + " or ".join("sentence" if one else "token" for one in sorted(by_sentence))


def _layers_of(run: RunRecord, metric: str) -> dict[str, Series]:
    """Layer -> the metric's values there, in the order of layers."""
    found = {}
    for split in (EPOCH, INNER):
        for name, series in run.series.get(split, {}).items():
            if (match := _OF_LAYER.match(name)) and match["base"] == metric:
                found[match["layer"]] = series
    return dict(sorted(found.items(), key=lambda one: (int(one[0].rstrip("ab")), one[0])))


def _seconds_behind(run: RunRecord, update: int) -> float | None:
    """The seconds of training until an update, as far as they are known."""
    for split in (INNER, EPOCH):
        for series in run.series.get(split, {}).values():
            known = [seconds for at, seconds in zip(series.updates, series.seconds, strict=True) if at <= update]
            return known[-1] if known else None
    return None
