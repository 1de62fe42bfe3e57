"""What fitting linear layers to all layers costs, in forward passes over the same data.

A forward pass is what scoring the data costs: the intact model from tokens to the scores of every word. The fit runs
the same model without the output projection, and sums the moments of every layer's inputs and outputs. Both take the
same batches by turns.

    python benchmarks/probe.py --output docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from machine import machine, versions
from option_types import command_of, fairseq_options, file_to_write, whole_number
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import Batch, Side, alternate, corpus, dictionary_of, on_device, quartiles, ratios, training_batches

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_depthwise.analysis.probe.fit import collect_moments, fits_of
from fairseq_depthwise.models.linearized.model import (
    SIDES,
    LinearizedTransformer,
    depths_of,
    layers_named,
    width_of,
)

SECTION = "probe"
FORWARD, FIT = "forward pass", "fit"

#: The fit of all layers is to cost at most so many forward passes.
BAR = 2.0

#: Models of the papers' base size.
SIDES_MEASURED = {
    "stock `transformer`, pre-norm": Side(
        "transformer_wmt_en_de", ("--encoder-normalize-before", "--decoder-normalize-before")
    ),
    "`depthwise_lstm_transformer`": Side("depthwise_lstm_transformer_wmt_en_de"),
    "`mute_transformer`": Side("mute_transformer_wmt_en_de"),
}


class OneBatch:
    """A batch that is ready, where a data set is expected."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __getitem__(self, index: int) -> int:
        return index

    def collater(self, samples: Sequence[int]) -> Batch:
        return self.batch


def measure(name: str, side: Side, options: argparse.Namespace, batches: Sequence[Batch]) -> dict[str, Any]:
    """Seconds of both for every round, and what the maps then cost."""
    torch.manual_seed(1)
    dictionary = dictionary_of(options.vocabulary)
    cfg = Side(side.arch, (*side.options, *options.model_overrides)).configuration(options.device)
    built = TranslationTask(cfg.task, dictionary, dictionary).build_model(cfg.model)
    widths = {side: width_of(built, side) for side in SIDES}
    layers = layers_named("all", depths_of(built), "", name)
    model = LinearizedTransformer(built, layers).to(options.device)
    device = torch.device(options.device)
    moments: Any = {}

    def forward(number: int) -> None:
        model.replace_only(None)
        inputs = batches[number % len(batches)]["net_input"]
        with torch.no_grad():
            model(**inputs)

    def fit(number: int) -> None:
        nonlocal moments
        dataset: Any = OneBatch(batches[number % len(batches)])
        moments = collect_moments(model, dataset, [[0]], device=device)

    def say(number: int, seconds: Mapping[str, float]) -> None:
        which = "warm-up" if number < 0 else f"round {number + 1} of {options.rounds}"
        tell(f"{name}, {which}: " + ", ".join(f"{work} {taken:.3f} s" for work, taken in seconds.items()))

    seconds = alternate({FORWARD: forward, FIT: fit}, rounds=options.rounds, warm_up=1, device=options.device, say=say)
    for one in moments.values():
        one.move_to("cpu")
    began = time.perf_counter()
    maps = fits_of(moments, widths, name)
    return {"name": name, "seconds": seconds, "layers": len(layers), "maps": len(maps),
            "solving": time.perf_counter() - began}  # fmt: skip


def page(setup: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """The section as Markdown."""
    lines = [
        "# Fitting linear layers to every layer",
        "",
        f"Made by `{setup['command']}`:",
        "a forward pass (tokens to the scores of every word) and the fit's pass (the same model without the output",
        "projection, and the moments of all layers) over the same batches by turns. Given are medians, and quartiles",
        f"in brackets, of {setup['rounds']} rounds; the maps are solved for once, after all data.",
        "",
        f"- Machine: {setup['machine']}; device {setup['device']}, threads of PyTorch: {setup['threads']}.",
        f"- Versions: {setup['versions']}.",
        f"- Batches of {', '.join(map(str, setup['tokens']))} target tokens by turns; vocabulary of "
        f"{setup['vocabulary']}.",
        *([f"- Options of all models: `{setup['options']}`."] if setup["options"] else []),
        "",
        "| model | layers | forward pass, s | fit, s | fit by forward pass | bar | solving, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        seconds = result["seconds"]
        low, middle, high = quartiles(ratios(seconds, FIT, FORWARD))
        lines.append(
            f"| {result['name']} | {result['layers']} | {statistics.median(seconds[FORWARD]):.3f} | "
            f"{statistics.median(seconds[FIT]):.3f} | {middle:.2f} ({low:.2f} - {high:.2f}) | {BAR:.1f}: "
            f"{'met' if middle <= BAR else 'not met'} | {result['solving']:.2f} for {result['maps']} maps |"
        )
    return "\n".join([*lines, ""])


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--rounds", type=whole_number(2), default=9, metavar="N", help="rounds that count (default: %(default)s)")
    add("--batches", type=whole_number(1), default=3, metavar="N", help="different batches (default: %(default)s)")
    add("--tokens", type=whole_number(1), default=2000, metavar="N", help="target tokens of one (default: %(default)s)")
    add("--vocabulary", type=whole_number(16), default=32768, metavar="N", help="entries (default: %(default)s)")
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models")
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    add("--json", type=file_to_write, metavar="FILE", help="write all numbers here")
    options = parser.parse_args(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: PyTorch finds no GPU here, so cuda is not possible; give cpu")
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return options


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, print the section and write the files."""
    dataset = corpus(dictionary_of(options.vocabulary), max(3003, options.batches * options.tokens // 10))
    batches = on_device(training_batches(dataset, options.tokens, options.batches), options.device)
    accelerator = f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    setup = {
        "command": command_of(given, "probe.py"),
        "device": options.device,
        "machine": machine() + accelerator,
        "threads": torch.get_num_threads(),
        "versions": versions("fairseq", "fairseq-depthwise"),
        "rounds": options.rounds,
        "tokens": [int(batch["ntokens"]) for batch in batches],
        "vocabulary": options.vocabulary,
        "options": " ".join(options.model_overrides),
    }
    results = [measure(name, side, options, batches) for name, side in SIDES_MEASURED.items()]
    text = page(setup, results)
    print(section(SECTION, text), end="")
    if options.json:
        write_json(options.json, {"setup": setup, "results": results})
    if options.output:
        write_section(Path(options.output), SECTION, text)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options(given)
    return run_program("probe", lambda: run(options, given))


if __name__ == "__main__":
    sys.exit(main())
