"""Draws learning_rate.svg: learning rate and encoder depth over the published training of 48 layers.

    python docs/figures/learning_rate.py

Stages and peak are those of the authors' script for WMT16 English-German; with 2381 updates an epoch, its 21 epochs are
the paper's 50 thousand updates. The rates are those of ``inverse_sqrt_restart`` and, for comparison, of a training
without stages, which has the longer warm-up of the paper's baselines.
Needs matplotlib: ``pip install -e '.[analysis]'``.
"""

from __future__ import annotations

import argparse
from itertools import accumulate, pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fairseq_compat.files import atomic_write
from fairseq_depthwise.optim.restart_schedule import rate, schedule_step

DEPTHS = (6, 12, 18, 24, 30, 36, 42, 48)
EPOCHS = (2, 2, 2, 2, 2, 3, 3, 5)
UPDATES_PER_EPOCH = 2381
PEAK, INITIAL = 2e-3, 1e-7
WARMUP, USUAL_WARMUP = 8000, 16000

STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],  # the first comes with matplotlib: the same layout everywhere
    "font.size": 11,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "learning_rate",  # ids are the same at every run
}
RESTARTED, USUAL, DEPTH = "#1f5fbf", "#c8641e", "#333333"


def draw() -> Figure:
    """The figure; all that is computed is the rate of each update."""
    borders = [0, *accumulate(UPDATES_PER_EPOCH * epochs for epochs in EPOCHS)]
    restarts, end = borders[1:-1], borders[-1]
    # The curves are smooth but for the restarts, which need the updates on both their sides.
    updates = sorted({*range(0, end, 100), *restarts, *(restart - 1 for restart in restarts), end - 1})
    restarted = [rate(schedule_step(update, restarts, WARMUP), PEAK, WARMUP, INITIAL) for update in updates]
    usual = [rate(update, PEAK, USUAL_WARMUP, INITIAL) for update in updates]

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xlim=(0, end), ylim=(0, 1.15 * PEAK), xlabel="updates (thousands)", ylabel="learning rate (10⁻³)"
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e3:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 1e3:.1f}")
    axes.spines[["top", "right"]].set_visible(False)
    for depth, (begin, border) in zip(DEPTHS, pairwise(borders), strict=True):
        shade = 0.03 + 0.25 * depth / DEPTHS[-1]
        axes.axvspan(begin, border, facecolor=RESTARTED, alpha=shade, linewidth=0)
        axes.text((begin + border) / 2, 1.08 * PEAK, f"{depth}L", color=DEPTH, ha="center", va="center")
    axes.plot(updates, restarted, color=RESTARTED, label=f"inverse_sqrt_restart, warm-up of {WARMUP:,} updates")
    axes.plot(updates, usual, "--", color=USUAL, label=f"inverse_sqrt, warm-up of {USUAL_WARMUP:,} updates")
    axes.legend(loc="lower right", title="shades: layers (L) of the encoder", alignment="left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).with_suffix(".svg"), help="where to (default: beside the script)"
    )
    output = parser.parse_args().output
    with mpl.rc_context(STYLE), atomic_write(output) as file:
        draw().savefig(file, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
