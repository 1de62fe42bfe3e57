"""Part "units" of ``results.py``: parallel units beside one, with biased inputs and with a learned order."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from results_commands import Workplace
from results_page import bootstrap, circumstances, commands, measured, row
from results_part import Languages, Numbers, Part
from results_training import length, sizes, train_and_score, training

from fairseq_compat import UserError

#: With one unit this is the pre-norm Transformer with relative positions, which stock fairseq does not have.
MODEL = (
    "fairseq-depthwise train data-bin --arch {arch} --encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden} "
    "--activation-dropout 0.1"
)
BASELINE = "relative"

#: What is trained: folder -> architecture and further options.
COMPARED = {
    BASELINE: ("mute_transformer", " --encoder-units 1"),
    "mute": ("mute_transformer", ""),
    "mute-biased": ("mute_transformer_biased", ""),
    "mute-sequential": ("mute_transformer_sequential", ""),
}

#: What the models are called in tables.
NAMES = {
    BASELINE: "Transformer with relative positions: `--encoder-units 1`",
    "mute": "`mute_transformer`, 4 units",
    "mute-biased": "`mute_transformer_biased`",
    "mute-sequential": "`mute_transformer_sequential`",
}

#: All have it, so that their losses are computed alike; without an order it is fairseq's own.
CRITERION = "label_smoothed_cross_entropy_with_auxiliary"
VALIDATIONS = 4


def check(options: argparse.Namespace) -> None:
    if options.unit_updates < VALIDATIONS:
        raise UserError(f"--unit-updates {options.unit_updates} has to be {VALIDATIONS} or more")


def trainings(options: argparse.Namespace) -> dict[str, str]:
    """The command of each training."""
    model = sizes(options.layers, options.width, options.heads)
    rest = length(options.unit_updates, options.max_tokens, options.seed, VALIDATIONS)
    found = {}
    for name, (arch, further) in COMPARED.items():
        program = f"{MODEL.format(arch=arch, hidden=4 * options.width)}{further} {model}"
        found[name] = training(program, name, options.learning_rate, options.warm_up, rest, criterion=CRITERION)
    return found


def measure(place: Workplace, options: argparse.Namespace, languages: Languages) -> dict[str, Any]:
    """Train, translate and score every model, and look at its units."""
    result = train_and_score(
        place, trainings(options), options.unit_updates, options.max_tokens, languages[1], "units-scores.txt"
    )
    several = " ".join(f"{name}/checkpoint_last.pt" for name in COMPARED if name != BASELINE)
    command = f"fairseq-depthwise units {several} --data data-bin --include-self --json > units-found.json"
    place.run(command)
    found = json.loads((place.folder / "units-found.json").read_text(encoding="utf-8"))
    return {**result, "commands": [*result["commands"], command], "units": found["checkpoints"]}


def section(part: Numbers, before: Numbers | None) -> Iterator[str]:
    settings, runs, scores = part["settings"], part["runs"], part["scores"]
    yield from (
        "### Parallel units",
        "",
        f"Each model: {settings['layers']} + {settings['layers']} layers, width {settings['width']}, "
        f"{settings['heads']} heads, hidden width {4 * settings['width']}, relative positions",
        f"up to 16 on keys and values, tied embeddings, {settings['unit_updates']} updates of at most "
        f"{settings['max_tokens']} tokens in fp32, peak learning rate",
        f"{settings['learning_rate']:g} after {settings['warm_up']} updates. Data, updates, seed and all other",
        "settings are the same; more units are more parameters. Scores are of the test set, last checkpoint, beam 4.",
        "",
        *circumstances(part, before),
        "",
        "| model | parameters | validation loss | without smoothing | BLEU | chrF | training s | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    )
    for name, run in runs.items():
        cells = measured(run, scores["systems"][name])
        yield row(
            NAMES[name], f"{run['parameters']:,}", *cells, f"{run['seconds']:.0f}", f"{run['tokens_per_second']:.0f}"
        )
    yield from (
        "",
        "Seconds are those of the updates alone; the machine had other work meanwhile, so they cannot be compared:",
        "`benchmarks/units.py` is what measures speed. The sequential model's loss counts its penalty,",
        "without smoothing it does not.",
        "",
        *_units(part["units"]),
        "",
        *bootstrap(scores, NAMES, "one unit"),
        "",
        "One run of each model with one seed; the bootstrap resamples the test sentences only. The budget is a small",
        "part of what the models need: it cannot rank them, and the order has hardly begun to move.",
        "",
        *commands(part, before),
    )


def _units(found: list[dict[str, Any]]) -> Iterator[str]:
    """Diversity as in Table 6, and the weights of the units."""
    yield from (
        "Diversity of the units on the validation set as the authors compute it (pairs of a unit with itself too, and",
        "feed-forward outputs with the residual),",
        "means of the layers; beside it the paper's Table 6 (NIST, 6 layers). Then the unit weights, layer by layer.",
        "",
        "| model | attention positions | attention outputs | feed-forward outputs | the paper's | unit weights |",
        "|---|---|---|---|---|---|",
    )
    published = {"mute": ".447 / .576 / .449", "mute-sequential": ".475 / .602 / .460"}
    names = [name for name in COMPARED if name != BASELINE]
    for name, one in zip(names, found, strict=True):
        mean = one["mean"]
        cells = [f"{mean[key]:.3f}" for key in ("attention_positions", "attention_outputs", "feed_forward_outputs")]
        weights = "; ".join(" ".join(f"{weight:.3f}" for weight in layer["weights"]) for layer in one["layers"])
        yield row(NAMES[name], *cells, published.get(name, "-"), weights)


UNITS = Part(
    name="units",
    options={"unit-updates": (1000, "units: updates of each training")},
    settings=("layers", "width", "heads", "unit_updates", "warm_up", "max_tokens", "learning_rate", "seed"),
    measure=measure,
    section=section,
    check=check,
)
