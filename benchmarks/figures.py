"""Draw the figures of README and docs from docs/records.

    python benchmarks/figures.py [NAME ...]

Analyses of models are drawn by the functions that their commands use; ``drawn.json`` has what they draw.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import comparison
import quality
import sweep
import torch
from fairseq.optim import FairseqOptimizer
from plans import Plan
from recipe_step import run_step
from records import RECORDS

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import MeanAndDeviation, StackReport
from fairseq_depthwise.analysis.connection_sources import OUTPUT
from fairseq_depthwise.analysis.connection_weights import SourceWeight
from fairseq_depthwise.analysis.gates import CellStatistics, GateDistribution, write_gates
from fairseq_depthwise.analysis.probe.record import BASELINE, ProbeRow
from fairseq_depthwise.analysis.probe.report import ProbedModel, write_probe_figure
from fairseq_depthwise.analysis.similarity import LayerSimilarity, write_similarity
from fairseq_depthwise.analysis.units import SentenceAttention, UnitReport, UnitRow, write_attention, write_weights
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.optim.inverse_sqrt_restart import InverseSqrtRestartConfig, InverseSqrtRestartSchedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path("docs/figures")


# --- analyses of models ----------------------------------------------------------------------------------------------


def _make_report(rows: Mapping[str, Any]) -> StackReport:
    """Return what an analysis measured, of which figures draw the rows alone."""
    return StackReport("", "", "", 0, dict.fromkeys(rows, 0), rows)


def draw_gates(path: str) -> None:
    """Draw the gates and norms of a depth-wise model."""
    models = _read_drawn("gates")
    reports = []
    for sides in models.values():
        rows = {}
        for side, layers in sides.items():
            rows[side] = [_make_cell(number, measures) for number, measures in enumerate(layers, start=1)]
        reports.append(_make_report(rows))
    write_gates(path, list(models), reports)


def _make_cell(layer: int, measures: Mapping[str, tuple[float, float]]) -> CellStatistics:
    gates: dict[str, GateDistribution] = {}
    norms: dict[str, MeanAndDeviation] = {}
    for name, (mean, deviation) in measures.items():
        if name.endswith("_gate"):
            gates[name] = GateDistribution(mean, deviation, shut=0, open=0)
        else:
            norms[name] = MeanAndDeviation(mean, deviation)
    return CellStatistics(layer, None, gates, norms)


def draw_similarity(path: str) -> None:
    """Draw the similarities of three models."""
    models = _read_drawn("similarity")
    reports = [_make_report({"encoder": [LayerSimilarity(*row) for row in rows]}) for rows in models.values()]
    write_similarity(path, list(models), reports)


def draw_probe(path: str) -> None:
    """Draw the scores of two models with one layer made linear."""
    rows: dict[str, list[ProbeRow]] = {}
    for part in _read_drawn("probe"):
        score = partial(ProbeRow, metric="BLEU", signature="")
        of_model = rows.setdefault(part["model"], [score(BASELINE, "", part["intact"])])
        for side in SIDES:
            for number, value in enumerate(part[side], start=1):
                of_model.append(score(f"{side}.{number}", part["state"], value))
    models = [ProbedModel(name, "", tuple(of_model)) for name, of_model in rows.items()]
    write_probe_figure(path, models, list(rows))


def draw_connections(path: str) -> None:
    """Draw what the layers of three encoders read, and what their outputs consist of."""
    models = _read_drawn("connections")
    reports = []
    for shares_of_readers in models.values():
        rows = []
        for shares in shares_of_readers:
            # The reader above layer l has l + 1 sources: the embedding and l layers.
            reader = OUTPUT if shares is shares_of_readers[-1] else len(shares)
            for layer, share in enumerate(shares):
                source = f"layer {layer}" if layer else "embedding"
                rows.append(SourceWeight(reader, source, MeanAndDeviation(share, 0)))
        reports.append(_make_report({"encoder": rows}))
    write_gates(path, list(models), reports)


def draw_unit_weights(path: str) -> None:
    """Draw the weights of the units of three models."""
    models = _read_drawn("units")
    reports = []
    for name, weights in models.items():
        reports.append(_make_unit_report(weights, has_order=name == "mute-sequential"))
    write_weights(path, list(models), reports)


def draw_unit_attention(path: str) -> None:
    """Draw where the units of three models attend in one sentence."""
    drawn = _read_drawn("attention")
    reports = []
    for maps in drawn["weights"].values():
        # null: below the weight from which on weights are drawn.
        weights = [[[weight or 0 for weight in row] for row in rows] for rows in maps]
        attention = SentenceAttention(drawn["layer"], drawn["words"], torch.tensor(weights))
        reports.append(_make_unit_report([], attention))
    write_attention(path, list(drawn["weights"]), reports)


def _make_unit_report(
    weights: list[list[float]], attention: SentenceAttention | None = None, *, has_order: bool = False
) -> UnitReport:
    rows = []
    for layer, of_layer in enumerate(weights, start=1):
        order = tuple(range(1, len(of_layer) + 1)) if has_order else None
        rows.append(UnitRow(layer, None, None, None, tuple(of_layer), tuple(of_layer), order))
    return UnitReport(**vars(_make_report({"encoder": rows})), include_self=False, attention=attention)


def _read_drawn(name: str) -> Any:
    return _read_record("drawn")[name]


# --- gates, gradients and noise over depth ---------------------------------------------------------------------------

#: Part of the record -> its title.
PARTS = {
    "forget": "mean of the forget gate",
    "gradient": "gradient of the value projection,\ndivided by the top layer's",
    "noise": "noise of dropout, divided by signal",
}
#: Model of the record -> its name.
FORMS = {"stock": "Transformer", "paper": "paper's form", "open": "open form"}


def draw_depth_profile(figure: Figure) -> None:
    """Draw a row of axes for each part, a column for each side: dashed at the start, solid after training."""
    rows = _read_record("depth_profile")["rows"]
    grid = figure.subplots(len(PARTS), len(SIDES), sharex=True, sharey="row")
    for panels, (part, title) in zip(grid, PARTS.items(), strict=True):
        for axes, side in zip(panels, SIDES, strict=True):
            for (model, name), color, marker in zip(FORMS.items(), COLORS, MARKERS, strict=False):
                for time, dashes in (("start", "--"), ("trained", "-")):
                    values = rows[model][time][part][side]
                    numbers = range(1, len(values) + 1)
                    style = {"color": color, "marker": marker, "linestyle": dashes, "markersize": 4.5}
                    axes.plot(numbers, values, **style, label=f"{name}, {time}")
            axes.grid(visible=True)
            axes.set_xticks(range(1, len(rows["stock"]["start"]["noise"][side]) + 1))
        panels[0].set_ylabel(title, fontsize=9)
        panels[0].set_ylim(0, 1 if part == "forget" else None)
    for axes, side in zip(grid[0], SIDES, strict=True):
        axes.set_title(side, fontsize=11)
    for axes in grid[-1]:
        axes.set_xlabel("layer")
    lines, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(FORMS), fontsize=9)


# --- the learning rate of a training that grows ----------------------------------------------------------------------

#: Stages and peak of the authors' script for WMT16 English-German; with so many updates in an epoch, its 21 epochs are
#: the paper's 50 thousand updates.
DEPTHS = (6, 12, 18, 24, 30, 36, 42, 48)
EPOCHS = (2, 2, 2, 2, 2, 3, 3, 5)
UPDATES_PER_EPOCH = 2381
PEAK, INITIAL = 2e-3, 1e-7
#: Updates of warm-up with stages, and without, as in the paper's baselines.
WARMUP, USUAL_WARMUP = 8000, 16000


def draw_learning_rate(figure: Figure) -> None:
    """Draw learning rate and encoder depth over the published training of 48 layers."""
    borders = [0, *accumulate(UPDATES_PER_EPOCH * epochs for epochs in EPOCHS)]
    restarts, end = borders[1:-1], borders[-1]
    # The curves are smooth but for the restarts, which need the updates on both their sides.
    updates = sorted({*range(0, end, 100), *restarts, *(restart - 1 for restart in restarts), end - 1})
    restarted = _compute_rates(updates, WARMUP, restarts)
    usual = _compute_rates(updates, USUAL_WARMUP, [])

    axes = figure.subplots()
    for depth, (begin, border) in zip(DEPTHS, pairwise(borders), strict=True):
        opacity = 0.03 + 0.25 * depth / DEPTHS[-1]
        axes.axvspan(begin, border, facecolor=COLORS[0], alpha=opacity, linewidth=0)
        axes.text((begin + border) / 2, 2.15, str(depth), ha="center", va="center")
    axes.plot(updates, restarted, color=COLORS[0], label=f"inverse_sqrt_restart, warm-up of {WARMUP:,} updates")
    axes.plot(updates, usual, "--", color=COLORS[1], label=f"inverse_sqrt, warm-up of {USUAL_WARMUP:,} updates")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlim=(0, end), ylim=(0, 2.3), xlabel="updates", ylabel="learning rate (10⁻³)")
    axes.set_title("layers of the encoder", fontsize=10)
    figure.legend(loc="outside lower center")


class _Optimizer(FairseqOptimizer):
    """As much of an optimizer as a schedule sets a rate of."""

    def __init__(self) -> None:
        super().__init__(None)
        self._optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def _compute_rates(updates: Sequence[int], warmup: int, restarts: Sequence[int]) -> list[float]:
    """Return the rates of updates, in thousandths."""
    config = InverseSqrtRestartConfig(
        lr=[PEAK], warmup_updates=warmup, warmup_init_lr=INITIAL, restart_updates=",".join(map(str, restarts))
    )
    schedule = InverseSqrtRestartSchedule(config, _Optimizer())
    return [1000 * schedule.step_update(update) for update in updates]


# --- all -------------------------------------------------------------------------------------------------------------


def draw_quality(figure: Figure) -> None:
    quality.draw(_read_record("quality_cpu")["rows"], figure)


def draw_protocol(figure: Figure) -> None:
    comparison.draw(Plan(sweep.PLANS / "multi30k.toml", sweep.RESULTS), figure)


def _read_record(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def _sized(width: float, height: float, draw: Callable[[Figure], None]) -> Callable[[str], None]:
    """Return a function(path) that draws a figure of a size in inches."""
    return lambda path: write_figure(path, (width, height), draw)


#: Name of a figure -> function(path) that draws it.
FIGURES: dict[str, Callable[[str], None]] = {
    "analysis_gates": draw_gates,
    "analysis_probe": draw_probe,
    "analysis_similarity": draw_similarity,
    "connection_weights": draw_connections,
    "depth_profile": _sized(7.0, 8.0, draw_depth_profile),
    "learning_rate": _sized(7.5, 4.5, draw_learning_rate),
    "protocol_multi30k": _sized(*comparison.SIZE, draw_protocol),
    "quality_cpu": _sized(5.2, 7.0, draw_quality),
    "unit_attention": draw_unit_attention,
    "unit_weights": draw_unit_weights,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all)")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="(default: %(default)s)")
    options = parser.parse_args()
    for name in options.names or FIGURES:
        if name not in FIGURES:
            raise UserError(f"{name} is no figure; known are {', '.join(FIGURES)}")
        FIGURES[name](str(options.output / f"{name}.svg"))


if __name__ == "__main__":
    run_step(main)
