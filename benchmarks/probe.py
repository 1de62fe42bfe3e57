"""What fitting linear layers in the place of all layers costs, in forward passes over the same data.

A forward pass is what scoring the data costs: the intact model from tokens to the scores of every word. The fit runs
the same model without the output projection, and sums the moments of every layer's inputs and outputs. Both take the
same batches by turns. Writes the record ``probe``.

    python benchmarks/probe.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from program import check_device, fairseq_options, integer, make_parser, run_program
from record import finish, setup_of
from turns import take_turns, timed
from workloads import Batch, Side, corpus, dictionary_of, on_device, training_batches

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_depthwise.analysis.probe.fit import collect_moments, fits_of
from fairseq_depthwise.models.linearized.model import (
    SIDES,
    LinearizedTransformer,
    depths_of,
    layers_named,
    width_of,
)

FORWARD, FIT = "forward pass", "fit"

#: Models of the papers' base size.
MODELS = {
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
    """Return the seconds of both in every round, and what solving for the linear layers then takes."""
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
        with torch.no_grad():
            model(**batches[number % len(batches)]["net_input"])

    def fit(number: int) -> None:
        nonlocal moments
        dataset: Any = OneBatch(batches[number % len(batches)])
        moments = collect_moments(model, dataset, [[0]], device=device)

    works = {FORWARD: timed(forward, options.device), FIT: timed(fit, options.device)}
    seconds = take_turns(works, rounds=options.rounds, warm_up=1, title=name)
    for layer in moments.values():
        layer.move_to("cpu")
    begin = time.perf_counter()
    fits = fits_of(moments, widths, name)
    solving = time.perf_counter() - begin
    return {"name": name, "seconds": seconds, "layers": len(layers), "fits": len(fits), "solving": solving}


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--rounds", type=integer(2), default=9, metavar="N", help=f"rounds that count {shown}")
    add("--batches", type=integer(1), default=3, metavar="N", help=f"different batches {shown}")
    add("--tokens", type=integer(1), default=2000, metavar="N", help=f"target tokens of a batch {shown}")
    add("--vocabulary", type=integer(16), default=32768, metavar="N", help=f"entries {shown}")
    add("--model-overrides", type=fairseq_options, default=(), metavar="OPTIONS", help="fairseq options for all models")
    options = parser.parse_args(given)
    check_device(parser, options)
    return options


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    dataset = corpus(dictionary_of(options.vocabulary), max(3003, options.batches * options.tokens // 10))
    batches = on_device(training_batches(dataset, options.tokens, options.batches), options.device)
    setup = setup_of(
        "probe", given, device=options.device, rounds=options.rounds, vocabulary=options.vocabulary,
        tokens=[int(batch["ntokens"]) for batch in batches],
    )  # fmt: skip
    results = [measure(name, side, options, batches) for name, side in MODELS.items()]
    finish(options.records, "probe", {"setup": setup, "results": results})


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("probe", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
