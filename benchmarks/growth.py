"""What shallow-to-deep training saves of the time of a model that is deep from the start.

Models of every depth are trained in turns in one process, an update each, and a schedule's saving follows from the
times: 1 - sum n_k t_k / (N t_deep), with n_k updates of t_k at k blocks. Then a model of 7 and one of 4 blocks are
grown to 8 in their trainers, as ``--growth-stages`` does. Writes the record ``growth``.

    python benchmarks/growth.py --size base --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import records
import speed

import fairseq_depthwise  # noqa: F401  # registers the models

#: Schedule -> blocks of layers and epochs of each stage: the deep model has 8 blocks, 48 layers in the paper.
BLOCKS = 8
SCHEDULES = {
    "the paper's": {1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 3, 7: 3, 8: 5},
    "doubling every 4 epochs, the paper's too": {1: 4, 2: 4, 4: 4, 8: 9},
}


def time_saved(stages: Mapping[int, float], times: Mapping[int, float]) -> float:
    """Return the share of time saved compared with as many updates at full depth.

    Args:
        stages: blocks -> length; growth itself is taken to cost nothing.
        times: blocks -> time of an update, for the full depth too.
    """
    taken = sum(length * times[blocks] for blocks, length in stages.items())
    return 1 - taken / (sum(stages.values()) * times[BLOCKS])


def training(options: argparse.Namespace, blocks: int, *extra: str) -> speed.Training:
    """Return a training of the shallow-to-deep model."""
    size = options.block_size
    row = speed.Row("", "sdt", blocks * size, (f"--encoder-block-size={size}", *extra))
    return speed.work_of(row, speed.TRAINING, options.precision, options)


def seconds_of_growth(options: argparse.Namespace, blocks: int, state: str, batch: Any) -> float:
    """Return the seconds in which a trained model is grown to full depth inside its trainer."""
    stages = f"{blocks * options.block_size}:1,{BLOCKS * options.block_size}:1"
    growth = [f"--growth-stages={stages}", f"--growth-optimizer-state={state}", "--lr-scheduler=inverse_sqrt_restart"]
    work = training(options, blocks, "--task=translation_layer_growth", *growth)
    work(batch)
    seconds = records.timed(lambda: work.trainer.begin_epoch(2), options.device)
    work(batch)
    return seconds


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    setup = speed.begin("growth", options, given)
    batches = speed.batches_of(options)
    works = {}
    for blocks in range(1, BLOCKS + 1):
        work = training(options, blocks)
        works[str(blocks)] = partial(
            records.timed, lambda work=work: [work(batch) for batch in batches], options.device
        )
    steps = records.take_turns(works, options.rounds)
    works.clear()
    growth = [
        {"before": blocks, "state": state, "seconds": seconds_of_growth(options, blocks, state, batches[0])}
        for blocks in (BLOCKS - 1, BLOCKS // 2)
        for state in ("reset", "keep")
    ]
    records.finish(options.records, "growth", {"setup": setup, "steps": steps, "growth": growth})


def tables(record: records.Record) -> dict[str, list[list[str]]]:
    """Return the tables of the record: saving, steps, growth."""
    deep, size = record["steps"][str(BLOCKS)], record["setup"]["block_size"]
    shares = {int(blocks): records.ratios(seconds, deep) for blocks, seconds in record["steps"].items()}
    saving = [["schedule", "saved", "with nothing but encoder layers"]]
    for name, stages in SCHEDULES.items():
        saved = time_saved(stages, {blocks: statistics.median(share) for blocks, share in shares.items()})
        saving.append([name, f"{saved:.1%}", f"{time_saved(stages, {blocks: blocks for blocks in shares}):.1%}"])
    steps = [["layers", "ms, median", "of the deepest"]]
    for blocks, share in shares.items():
        seconds = statistics.median(record["steps"][str(blocks)]) / speed.BATCHES
        steps.append([str(blocks * size), f"{1000 * seconds:.0f}", f"{statistics.median(share):.3f}"])
    growth = [["layers", "`--growth-optimizer-state`", "s"]]
    for one in record["growth"]:
        growth.append([f"{one['before'] * size} -> {BLOCKS * size}", one["state"], f"{one['seconds']:.2f}"])
    return {"saving": saving, "steps": steps, "growth": growth}


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = speed.make_parser(__doc__)
    parser.add_argument("--precision", choices=speed.TYPES, default="fp32", help="(default: %(default)s)")
    parser.add_argument("--block-size", type=records.integer(1), default=6, help="layers of a block (default: 6)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(records.run_program("growth", parse_options, run, None))
