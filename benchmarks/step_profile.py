"""Where the time of a training step goes, by operation, in stock fairseq's Transformer and in each family.

Shares of self time are of PyTorch's profiler around ``Trainer.train_step``. Writes the record ``step_profile``.

    python benchmarks/step_profile.py --size base --precision bf16
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import records
import speed
from torch.profiler import ProfilerActivity, profile

import fairseq_depthwise  # noqa: F401  # registers the models

ROWS = ("stock 6", "depth-wise", "mute 4", "sdt 6")


def measure(row: str, options: argparse.Namespace, batch: Any) -> dict[str, float]:
    """Return the seconds of each operation in a step."""
    work = speed.work_of(speed.ROWS[row], speed.TRAINING, options.precision, options)
    work(batch)  # memory, and what an optimizer and a GPU's kernels do at first
    cuda = options.device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as profiler:
        for _ in range(options.rounds):
            work(batch)
    kind = "self_device_time_total" if cuda else "self_cpu_time_total"
    return {one.key: getattr(one, kind) / 1e6 / options.rounds for one in profiler.key_averages() if getattr(one, kind)}


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    setup = speed.begin("step_profile", options, given)
    batch = speed.batches_of(options)[-1]
    seconds = {row: measure(row, options, batch) for row in ROWS}
    records.finish(options.records, "step_profile", {"setup": setup, "seconds": seconds})


def table(record: records.Record) -> list[list[str]]:
    """Return the table of the record: percent of a step."""
    shares = {
        row: {name: 100 * seconds / sum(found.values()) for name, seconds in found.items()}
        for row, found in record["seconds"].items()
    }
    names = sorted({name for share in shares.values() for name in share}, key=lambda name: -max(
        share.get(name, 0) for share in shares.values()))[:20]  # fmt: skip
    lines = [["% of a step", *shares]]
    lines += [[f"`{name}`", *(f"{share.get(name, 0):.1f}" for share in shares.values())] for name in names]
    rest = (100 - sum(share.get(name, 0) for name in names) for share in shares.values())
    lines.append(["others", *(f"{value:.1f}" for value in rest)])
    return [*lines, ["ms", *(f"{1000 * sum(found.values()):.0f}" for found in record["seconds"].values())]]


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = speed.make_parser(__doc__)
    parser.add_argument("--precision", choices=speed.TYPES, default="fp32", help="(default: %(default)s)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(records.run_program("step_profile", parse_options, run, None))
