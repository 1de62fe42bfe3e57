"""Part "stability" of ``results.py``: a deep depth-wise model in fp32 and in bf16, its losses and its gradients."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

from results_commands import Workplace
from results_page import circumstances, commands, row
from results_part import Languages, Numbers, Part
from results_training import LOG_EVERY, read_training, sizes, training

from fairseq_compat import UserError

DEEP = "fairseq-depthwise train data-bin --arch depthwise_lstm_transformer --depthwise-hidden-dim {hidden}"

#: What is trained: folder -> program and the options in which it differs from the others.
PRECISIONS = {"fp32": DEEP, "bf16": f"{DEEP} --bf16"}

#: The peak of the papers' schedule: 512 wide, 8000 updates of warm-up.
PAPERS_PEAK = (512 * 8000) ** -0.5


def check(options: argparse.Namespace) -> None:
    if options.deep_warm_up < LOG_EVERY or options.deep_updates <= options.deep_warm_up:
        raise UserError(f"--deep-warm-up has to be at least {LOG_EVERY} and below --deep-updates")


def measure(place: Workplace, options: argparse.Namespace, languages: Languages) -> dict[str, Any]:
    """Train the deep model in both precisions."""
    model = sizes(options.deep_layers, options.deep_width, options.heads)
    rest = (
        f"--max-tokens {options.deep_max_tokens} --max-update {options.deep_updates} --seed {options.seed} "
        f"--disable-validation --save-interval-updates {options.deep_warm_up}"
    )
    trainings, runs = [], {}
    for name, program in PRECISIONS.items():
        program = f"{program.format(hidden=4 * options.deep_width)} {model}"
        command = training(program, name, PAPERS_PEAK, options.deep_warm_up, rest)
        log = place.train(command, name, options.deep_updates, may_diverge=True)
        trainings.append(command)
        runs[name] = read_training(log)
    return {"commands": trainings, "runs": runs}


def section(part: Numbers, before: Numbers | None) -> Iterator[str]:
    settings, runs = part["settings"], part["runs"]
    layers = settings["deep_layers"]
    parameters = next(iter(runs.values()))["parameters"]
    yield from (
        f"### {layers} + {layers} layers",
        "",
        f"`depthwise_lstm_transformer` with {layers} + {layers} layers, width {settings['deep_width']}, "
        f"{settings['heads']} heads, hidden width {4 * settings['deep_width']} ({parameters:,} parameters):",
        f"{settings['deep_updates']} updates of at most {settings['deep_max_tokens']} tokens, gradients not clipped. "
        "Adam and the peak learning rate, (512 * 8000)^-0.5 =",
        f"4.94e-4, are the papers'. Their 8000 updates of warm-up are shortened to {settings['deep_warm_up']}, so that "
        "the peak is reached; the",
        "papers' batches are many times larger too.",
        "",
        *circumstances(part, before),
        "",
        "Each number is the mean of the ten updates up to that one.",
        "",
        row("update", *(f"{name} {what}" for name in runs for what in ("loss", "gradient norm"))),
        "|---" * (2 * len(runs) + 1) + "|",
    )
    for update in shown_updates(settings["deep_updates"]):
        states = [run["train"].get(str(update)) for run in runs.values()]
        yield row(str(update), *(f"{one[key]:.3f}" if one else "-" for one in states for key in ("loss", "gnorm")))
    yield ""
    for name, run in runs.items():
        finite = "are finite" if all_finite(run) else "are NOT all finite"
        highest = max((state["gnorm"] for state in run["train"].values()), default=math.nan)
        verdict = "diverged" if diverged(run, settings["deep_updates"], settings["deep_warm_up"]) else "did not diverge"
        yield f"- {name} {verdict}. The logged losses and gradient norms {finite}; the largest norm is {highest:.3f}."
    yield from (
        "",
        "Diverged means: a value is not finite, the training stopped early, or the last loss is above the one at the",
        f"end of warm-up (update {settings['deep_warm_up']}). One run of each, one seed, a narrow model, few updates",
        "and short sentences: this does not tell how a model of the papers' width trains to the end.",
        "",
        *commands(part, before),
    )


def shown_updates(updates: int) -> list[int]:
    """The rows of the table: 10, every 50, and the last."""
    last = updates - updates % 10
    return sorted({10, *range(50, last + 1, 50), last})


def all_finite(run: Numbers) -> bool:
    """Whether every logged loss and gradient norm is a number."""
    return all(math.isfinite(value) for state in run["train"].values() for value in state.values())


def diverged(run: Numbers, updates: int, warm_up: int) -> bool:
    """Whether a value is not finite, the training stopped early, or it got worse after warm-up."""
    losses = {int(number): state["loss"] for number, state in run["train"].items()}
    if not losses or not all_finite(run) or max(losses) < updates - updates % 10:
        return True
    return losses[max(losses)] > losses[max(number for number in losses if number <= warm_up)]


STABILITY = Part(
    name="stability",
    options={
        "deep-layers": (24, "stability: layers of encoder and of decoder"),
        "deep-width": (64, "stability: width"),
        "deep-updates": (300, "stability: updates"),
        "deep-warm-up": (100, "stability: updates of warm-up; the verdict compares with the loss there"),
        "deep-max-tokens": (1500, "stability: tokens a batch"),
    },
    settings=("deep_layers", "deep_width", "heads", "deep_updates", "deep_warm_up", "deep_max_tokens", "seed"),
    measure=measure,
    section=section,
    check=check,
)
