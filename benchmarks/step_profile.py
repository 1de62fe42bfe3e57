"""Where the time of a training step goes, by operation, in stock fairseq's Transformer and in each family.

Shares of self time are of PyTorch's profiler around ``Trainer.train_step``. Operations are those that its counter finds
in products, on a GPU in attention, too: a multiplication and an addition are two. Writes the record ``step_profile``.

    python benchmarks/step_profile.py --size base --precision bf16
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import records
import speed
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_depthwise.tables import Table

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
    seconds = {}
    for operation in profiler.key_averages():
        microseconds = getattr(operation, kind)
        if microseconds:
            seconds[operation.key] = microseconds / 1e6 / options.rounds
    return seconds, counter.get_total_flops()


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    setup = speed.begin("step_profile", options, given)
    seconds, operations = {}, {}
    for row in ROWS:
        seconds[row], operations[row] = measure(row, options, speed.batches_of(options)[-1])
    name = "step_profile" if options.precision == "fp32" else f"step_profile_{options.precision}"
    records.finish(options.records, name, {"setup": setup, "seconds": seconds, "operations": operations})


def table(record: records.Record) -> Table:
    """Return the table of the record: percent of a step, and how fast products are."""
    shares = {row: _shares(seconds) for row, seconds in record["seconds"].items()}
    most: dict[str, float] = {}
    for of_row in shares.values():
        for name, share in of_row.items():
            most[name] = max(most.get(name, 0), share)
    names = sorted(most, key=lambda name: -most[name])[:8]
    table = Table("% of a step", *shares)

    def add(name: str, cells: Iterable[str]) -> None:
        table.add({"% of a step": name, **dict(zip(shares, cells, strict=True))})

    for name in names:
        add(name, (f"{of_row.get(name, 0):.1f}" for of_row in shares.values()))
    shown = {row: sum(of_row.get(name, 0) for name in names) for row, of_row in shares.items()}
    add("others", (f"{100 - share:.1f}" for share in shown.values()))
    total = {row: sum(seconds.values()) for row, seconds in record["seconds"].items()}
    add("ms", (f"{1000 * seconds:.0f}" for seconds in total.values()))
    operations = record["operations"]
    add("GFLOP", (f"{operations[row] / 1e9:.0f}" for row in total))
    seconds_of_products = {row: total[row] * shares[row]["products"] / 100 for row in total}
    add(
        "GFLOP/s of products",
        (f"{operations[row] / 1e9 / seconds:.0f}" for row, seconds in seconds_of_products.items()),
    )
    return table


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the percentage of each operation in a step; all products count as one."""
    whole = sum(seconds.values())
    shares = {"products": 0.0}
    for operation, of_operation in seconds.items():
        name = "products" if operation.removeprefix("aten::") in PRODUCTS else f"`{operation}`"
        shares[name] = shares.get(name, 0) + 100 * of_operation / whole
    return shares


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = speed.make_parser(__doc__)
    parser.add_argument("--precision", choices=speed.TYPES, default="fp32", help="(default: %(default)s)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(records.run_program("step_profile", parse_options, run, None))
