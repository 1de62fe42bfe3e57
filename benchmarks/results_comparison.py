"""Part "comparison" of ``results.py``: depth-wise models beside stock fairseq's Transformer.

All are trained on the same data with the same settings, translate the test set and are scored.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from results_commands import Workplace
from results_page import bootstrap, circumstances, commands, measured, row
from results_part import Languages, Numbers, Part
from results_training import length, sizes, train_and_score, training

from fairseq_compat import UserError

#: What is trained: folder -> program and the options in which it differs from the others.
COMPARED = {
    "stock": (
        "fairseq-train data-bin --arch transformer --encoder-normalize-before --decoder-normalize-before "
        "--encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden}"
    ),
    "lstm": "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-hidden-dim {hidden}",
    "rnn": (
        "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-cell rnn "
        "--depthwise-hidden-dim {hidden}"
    ),
}

#: What the models are called in tables.
NAMES = {
    "stock": "stock fairseq: `transformer`, pre-norm",
    "lstm": "`depthwise_lstm_transformer`",
    "rnn": "`depthwise_lstm_transformer --depthwise-cell rnn`",
}
VALIDATIONS = 4


def check(options: argparse.Namespace) -> None:
    if options.updates < VALIDATIONS:
        raise UserError(f"--updates {options.updates} has to be {VALIDATIONS} or more")


def measure(place: Workplace, options: argparse.Namespace, languages: Languages) -> dict[str, Any]:
    """Train, translate and score every model of the comparison."""
    model = sizes(options.layers, options.width, options.heads)
    rest = length(options.updates, options.max_tokens, options.seed, VALIDATIONS)
    hidden = 4 * options.width
    trainings = {
        name: training(f"{program.format(hidden=hidden)} {model}", name, options.learning_rate, options.warm_up, rest)
        for name, program in COMPARED.items()
    }
    return train_and_score(place, trainings, options.updates, options.max_tokens, languages[1], "scores.txt")


def section(part: Numbers, before: Numbers | None) -> Iterator[str]:
    settings, runs, scores = part["settings"], part["runs"], part["scores"]
    yield from (
        "### Compared with stock fairseq",
        "",
        f"Each model: {settings['layers']} + {settings['layers']} layers, width {settings['width']}, "
        f"{settings['heads']} heads, hidden width {4 * settings['width']},",
        f"tied embeddings, {settings['updates']} updates of at most {settings['max_tokens']} tokens in fp32, peak "
        f"learning rate {settings['learning_rate']:g}",
        f"after {settings['warm_up']} updates. Data, updates, seed and all other settings are the same; the learning "
        "rate was set beforehand and",
        "tuned for none of them. Scores are of the test set, from the last checkpoint, beam 4.",
        "",
        *circumstances(part, before),
        "",
        "| model | parameters | validation loss | without smoothing | BLEU | chrF | training s | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    )
    for name, run in runs.items():
        yield row(
            NAMES[name],
            f"{run['parameters']:,}",
            *measured(run, scores["systems"][name]),
            f"{run['seconds']:.0f}",
            f"{run['tokens_per_second']:.0f}",
        )
    yield from (
        "",
        "Seconds are those of the updates alone, without start, validation and saving; tokens/s are target tokens, the",
        "median of the log lines. The trainings ran one after the other, so both suffer from whatever else the machine",
        "did meanwhile; `benchmarks/bench.py` is what measures speed.",
        "",
        "Validation loss by update:",
        "",
        *_validations(runs),
        "",
        *bootstrap(scores, NAMES, "stock"),
        "",
        "One run of each model with one seed. The bootstrap resamples the test sentences only: what another seed would",
        "change is not in it. One seed and a budget that is a small fraction of what the models need cannot rank them.",
        "",
        *commands(part, before),
    )


def _validations(runs: Numbers) -> Iterator[str]:
    """A table with a column for each validation."""
    updates = list(dict.fromkeys(number for run in runs.values() for number in run["valid"]))
    yield row("model", *updates)
    yield "|---" * (len(updates) + 1) + "|"
    for name, run in runs.items():
        yield row(NAMES[name], *(f"{run['valid'][number]['loss']:.3f}" for number in updates))


COMPARISON = Part(
    name="comparison",
    options={
        "layers": (3, "comparison: layers of encoder and of decoder; growth: of the decoder"),
        "width": (128, "comparison, growth: width; the hidden width is four times that"),
        "updates": (1400, "comparison: updates of each training"),
        "warm-up": (400, "comparison, growth: updates of warm-up"),
        "max-tokens": (2000, "comparison, growth: tokens a batch"),
        "learning-rate": (1e-3, "comparison, growth: peak learning rate"),
    },
    settings=("layers", "width", "heads", "updates", "warm_up", "max_tokens", "learning_rate", "seed"),
    measure=measure,
    section=section,
    check=check,
)
