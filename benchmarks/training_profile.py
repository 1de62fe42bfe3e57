"""Where the time of a training step goes, by kind of operation: stock fairseq and each family beside one another.

Each family twice: with what the plugin replaces put back (criterion, optimizer), and as it is. Shares come from
PyTorch's profiler around ``Trainer.train_step``, whole updates are timed without it, both ways by turns. Progress goes
to stderr, the section of the page to stdout.

    python benchmarks/training_profile.py --output docs/benchmarks.md --record docs/records/training_profile.json
    python benchmarks/training_profile.py --size base --precisions bf16 --families depthwise
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from machine import machine, memory_variables, use_threads, versions
from operation_kinds import KINDS, marked, seconds_of_kinds
from option_types import file_to_write, names_of, whole_number
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import TYPES, Side, Training, alternate, corpus, dictionary_of, quartiles, ratios, training_batches
from torch.profiler import ProfilerActivity, profile, record_function

import fairseq_depthwise  # noqa: F401  # registers the models

#: The section of the page that this program writes.
SECTION = "training-profile"

STOCK, BEFORE = "stock", " before"

#: Name -> architecture and options that differ.
FAMILIES: dict[str, tuple[str, ...]] = {
    "depthwise": ("depthwise_lstm_transformer",),
    "sdt": ("sdt_transformer", "--encoder-block-size", "3"),
    "mute": ("mute_transformer", "--encoder-units", "4"),
}

#: Size -> width, inner width, heads, layers of each stack, entries of the dictionary.
SIZES = {"narrow": (256, 1024, 4, 3, 8192), "base": (512, 2048, 8, 6, 32768)}

#: What the plugin puts in the place of fairseq's own.
REPLACED = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--optimizer", "fused_adam")

_STEP = "training step"


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--size", choices=SIZES, default="narrow", help="of all models (default: %(default)s)")
    add("--families", type=names_of(tuple(FAMILIES)), default=list(FAMILIES), metavar="LIST", help="default: all")
    add("--precisions", type=names_of(tuple(TYPES)), default=list(TYPES), metavar="LIST", help="default: fp32,bf16")
    add("--train-tokens", type=whole_number(1), default=1000, metavar="N", help="target tokens in a batch (default:"
        " %(default)s)")  # fmt: skip
    add("--steps", type=whole_number(1), default=3, metavar="N", help="profiled steps (default: %(default)s)")
    add("--rounds", type=whole_number(2), default=5, metavar="N", help="timed updates (default: %(default)s)")
    add("--threads", type=whole_number(1), metavar="N", help="of PyTorch (default: its own choice)")
    add("--model-overrides", default="", metavar="OPTIONS", help="fairseq options for all models")
    add("--record", type=file_to_write, metavar="FILE", help="write all numbers here")
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    return parser.parse_args(given)


def sides_of(options: argparse.Namespace) -> dict[str, Side]:
    """Stock fairseq, and each family before and after."""
    width, inner, heads, layers, _ = SIZES[options.size]
    common = options.model_overrides.split()
    found = {}
    for stack in ("encoder", "decoder"):
        common = [f"--{stack}-embed-dim={width}", f"--{stack}-attention-heads={heads}", f"--{stack}-layers={layers}",
                  *common]  # fmt: skip
    inners = [f"--{stack}-ffn-embed-dim={inner}" for stack in ("encoder", "decoder")]
    found[STOCK] = Side("transformer", (*inners, *common))
    for name in options.families:
        arch, *own = FAMILIES[name]
        wide = [f"--depthwise-hidden-dim={inner}"] if name == "depthwise" else inners
        given = (*wide, *common, *own)
        found |= {name + BEFORE: Side(arch, given), name: Side(arch, (*given, *REPLACED))}
    return found


def profiled(work: Training, batches: Sequence[Any], steps: int) -> dict[str, float]:
    """Seconds of each kind of operation in a step."""
    trainer = work.trainer
    with marked(trainer.model, trainer.criterion), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(steps):
            with record_function(_STEP):
                work(batches[number % len(batches)])
    return {kind: taken / steps for kind, taken in seconds_of_kinds(profiler.events(), _STEP).items()}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """For each precision and side: seconds of each kind, and for a family those of whole updates, before and after."""
    dictionary = dictionary_of(SIZES[options.size][-1])
    batches = training_batches(corpus(dictionary, max(600, options.train_tokens // 3)), options.train_tokens, 3)
    results = []
    for precision in options.precisions:
        for group in (STOCK, *options.families):
            names = [STOCK] if group == STOCK else [group + BEFORE, group]
            sides = sides_of(options)
            works = {name: Training(sides[name], dictionary, "cpu", precision) for name in names}
            seconds = alternate(
                {name: _on(batches, work) for name, work in works.items()},
                rounds=options.rounds, warm_up=3, device="cpu", say=lambda *_: None,
            )  # fmt: skip
            for name, work in works.items():
                kinds = profiled(work, batches, options.steps)
                results.append({"precision": precision, "side": name, "kinds": kinds, "updates": seconds[name]})
                tell(f"{precision} {name}: {statistics.median(seconds[name]):.3f} s an update")
            works.clear()
            gc.collect()  # fairseq's trainer is full of cycles, and the next models need the memory
    return results


def _on(batches: Sequence[Any], work: Training) -> Callable[[int], None]:
    return lambda number: work(batches[number % len(batches)])


def page(options: argparse.Namespace, setup: Mapping[str, str], results: Sequence[Mapping[str, Any]]) -> str:
    width, inner, heads, layers, vocabulary = SIZES[options.size]
    lines = [
        "# Where the time of a training step goes",
        "",
        f"Made by `python benchmarks/training_profile.py --size {options.size}`: {layers} + {layers} layers of width",
        f"{width} (inner {inner}, {heads} heads; mute with 4 units), a dictionary of {vocabulary:,}, batches of about",
        f"{options.train_tokens} target tokens, dropout 0.1. Shares are percent of the time of {options.steps} steps,",
        "by the profiler of PyTorch, which itself costs time where operations are many and small; the backward pass of",
        "dropout, and that of fairseq's criterion but for its softmax, count as element-wise. Before: the same",
        "model with fairseq's `label_smoothed_cross_entropy` and `adam`; without that word the plugin's",
        "`label_smoothed_cross_entropy_with_auxiliary` and `fused_adam` are in their places. The last rows are whole",
        f"updates without the profiler, both by turns: medians of {options.rounds}, and the ratio's quartiles.",
        "",
        f"- Machine: {setup['machine']}; threads of PyTorch: {setup['threads']}. {setup['variables']}".rstrip(),
        f"- Versions: {setup['versions']}.",
    ]
    for precision in options.precisions:
        rows = [one for one in results if one["precision"] == precision]
        names = [one["side"] for one in rows]
        lines += ["", f"## {precision}", "", f"| % of a step | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for kind in KINDS:
            shares = (f"{100 * one['kinds'][kind] / sum(one['kinds'].values()):.1f}" for one in rows)
            lines.append(f"| {kind} | {' | '.join(shares)} |")
        medians = {one["side"]: statistics.median(one["updates"]) for one in rows}
        lines.append(f"| ms an update | {' | '.join(f'{1000 * medians[name]:.0f}' for name in names)} |")
        by_name = {one["side"]: one["updates"] for one in rows}
        gains = {name: quartiles(ratios(by_name, name + BEFORE, name)) for name in names if name + BEFORE in names}
        cells = ("{1:.2f} ({0:.2f} - {2:.2f})".format(*gains[name]) if name in gains else "" for name in names)
        lines.append(f"| times as fast as before | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def setup_of() -> dict[str, str]:
    variables = memory_variables()
    return {
        "machine": machine(),
        "threads": str(torch.get_num_threads()),
        "versions": versions("fairseq", "fairseq-depthwise"),
        "variables": f"With `{variables}`." if variables else "",
    }


def run(options: argparse.Namespace) -> None:
    """Measure, print the section and write the files."""
    use_threads(options.threads)
    setup, results = setup_of(), measure(options)
    text = page(options, setup, results)
    print(section(SECTION, text), end="")
    if options.record:
        write_json(options.record, {"setup": setup, "results": results})
    if options.output:
        write_section(options.output, SECTION, text)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(list(sys.argv[1:] if arguments is None else arguments))
    return run_program("training_profile", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
