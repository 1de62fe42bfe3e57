"""Where the time of a training step goes, by operation, in stock fairseq's Transformer and in each family.

Shares of self time are of PyTorch's profiler around ``Trainer.train_step``. Operations are those that its counter finds
in products, on a GPU in attention, too: a multiplication and an addition are two. Writes the record ``step_profile``.

    python benchmarks/step_profile.py --size base --precision bf16
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from typing import Any

import records
import speed
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

import fairseq_depthwise  # noqa: F401  # registers the models

ROWS = ("stock 6", "depth-wise", "mute 4", "sdt 6")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def measure(row: str, options: argparse.Namespace, batch: Any) -> tuple[dict[str, float], int]:
    """Return the seconds of each operation in a step, and how many operations its products have."""
    work = speed.work_of(speed.ROWS[row], speed.TRAINING, options.precision, options)
    work(batch)  # memory, and what an optimizer and a GPU's kernels do at first
    gc.collect()  # else the rows before are freed in a step of this one
    with profile() as profiler:
        for _ in range(options.rounds):
            work(batch)
    with FlopCounterMode(display=False) as counter:
        work(batch)
    kind = "self_device_time_total" if options.device == "cuda" else "self_cpu_time_total"
    found = ((one.key, getattr(one, kind) / 1e6 / options.rounds) for one in profiler.key_averages())
    return {key: seconds for key, seconds in found if seconds}, counter.get_total_flops()


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    setup = speed.begin("step_profile", options, given)
    measured = {row: measure(row, options, speed.batches_of(options)[-1]) for row in ROWS}
    seconds, counted = ({row: found[i] for row, found in measured.items()} for i in range(2))
    name = "step_profile" if options.precision == "fp32" else f"step_profile_{options.precision}"
    records.finish(options.records, name, {"setup": setup, "seconds": seconds, "operations": counted})


def table(record: records.Record) -> list[list[str]]:
    """Return the table of the record: percent of a step, and how fast products are."""
    shares: dict[str, dict[str, float]] = {}
    for row, found in record["seconds"].items():
        shares[row] = {"products": 0.0}
        for name, seconds in found.items():
            name = "products" if name.removeprefix("aten::") in PRODUCTS else f"`{name}`"
            shares[row][name] = shares[row].get(name, 0) + 100 * seconds / sum(found.values())
    most = {name: max(share.get(name, 0) for share in shares.values()) for share in shares.values() for name in share}
    names = sorted(most, key=lambda name: -most[name])[:8]
    lines = [
        ["% of a step", *shares],
        *([name, *(f"{one.get(name, 0):.1f}" for one in shares.values())] for name in names),
    ]
    lines.append(["others", *(f"{100 - sum(one.get(name, 0) for name in names):.1f}" for one in shares.values())])
    total = {row: sum(found.values()) for row, found in record["seconds"].items()}
    lines.append(["ms", *(f"{1000 * seconds:.0f}" for seconds in total.values())])
    lines.append(["GFLOP", *(f"{record['operations'][row] / 1e9:.0f}" for row in total)])
    rates = (record["operations"][row] / 1e7 / shares[row]["products"] / total[row] for row in total)
    return [*lines, ["GFLOP/s of products", *(f"{rate:.0f}" for rate in rates)]]


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = speed.make_parser(__doc__)
    parser.add_argument("--precision", choices=speed.TYPES, default="fp32", help="(default: %(default)s)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(records.run_program("step_profile", parse_options, run, None))
