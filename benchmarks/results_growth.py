"""Part "growth" of ``results.py``: a model grown while it is trained beside the same one trained from the start.

Also what two of the method's choices do: growing without restarting the learning rate, and copying the top layer only.
The paper's third strategy, interpolation, cannot go with blocks of two layers and is left out.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results_commands import Workplace
from results_page import bootstrap, circumstances, commands, measured, row
from results_part import Languages, Numbers, Part
from results_training import length, train_and_score, training, widths

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

BLOCK_SIZE = 2
DISTANCE = 8
ARCH = "sdt_transformer"
MODEL = (
    "--encoder-ffn-embed-dim {hidden} --decoder-ffn-embed-dim {hidden} --encoder-block-size {block} "
    "--max-relative-positions {distance}"
)
TRAINED = f"fairseq-depthwise train data-bin --arch {ARCH} {MODEL}"
GROWN = TRAINED + " --task translation_layer_growth --growth-stages {stages}"
FROM_START = "from-start"

#: What is trained: folder -> program with the options in which it differs from the others, and schedule.
RUNS = {
    FROM_START: (TRAINED + " --encoder-layers {deep}", "inverse_sqrt"),
    "grown": (GROWN, "inverse_sqrt_restart"),
    "grown-no-restart": (GROWN, "inverse_sqrt"),
    "grown-top": (GROWN + " --growth-strategy top", "inverse_sqrt_restart"),
}

#: What the models are called in tables.
NAMES = {
    FROM_START: "from the start",
    "grown": "grown",
    "grown-no-restart": "grown, no restart: `--lr-scheduler inverse_sqrt`",
    "grown-top": "grown, `--growth-strategy top`",
}
VALIDATIONS = 14

#: Encoder layers of each stage and its updates.
Stages = list[tuple[int, int]]


def read_stages(text: str) -> Stages:
    """The stages of ``--growth-stages``; all of them in updates.

    Raises:
        UserError: they are something else.
    """
    if not re.fullmatch(r"\d+:\d+u(,\d+:\d+u)+", text):
        raise UserError(f"--growth-stages {text} has to be stages in updates, such as 2:400u,4:400u,6:600u")
    return [(int(layers), int(updates)) for layers, updates in re.findall(r"(\d+):(\d+)u", text)]


def check(options: argparse.Namespace) -> None:
    read_stages(options.growth_stages)
    names = options.growth_runs.split(",")
    if names[0] != FROM_START or len(names) < 2 or not RUNS.keys() >= set(names):
        raise UserError(f"--growth-runs {options.growth_runs} has to be {FROM_START} and some of {','.join(RUNS)}")


def trainings(options: argparse.Namespace) -> dict[str, str]:
    """The command of each training."""
    stages = read_stages(options.growth_stages)
    rest = length(sum(updates for _, updates in stages), options.max_tokens, options.seed, VALIDATIONS)
    found = {}
    for name in options.growth_runs.split(","):
        program, scheduler = RUNS[name]
        program = f"{_filled_in(program, options)} {_sizes(options)}"
        found[name] = training(program, name, options.learning_rate, options.warm_up, rest, scheduler=scheduler)
    return found


def _filled_in(text: str, options: argparse.Namespace) -> str:
    deep = read_stages(options.growth_stages)[-1][0]
    hidden = 4 * options.width
    return text.format(hidden=hidden, block=BLOCK_SIZE, distance=DISTANCE, stages=options.growth_stages, deep=deep)


def _sizes(options: argparse.Namespace) -> str:
    """Options of all sizes but the encoder's depth."""
    return f"--decoder-layers {options.layers} {widths(options.width, options.heads)}"


def measure(place: Workplace, options: argparse.Namespace, languages: Languages) -> dict[str, Any]:
    """Train, translate and score the model from the start and the grown ones, and time steps at each depth."""
    stages = read_stages(options.growth_stages)
    updates = sum(updates for _, updates in stages)
    result = train_and_score(place, trainings(options), updates, options.max_tokens, languages[1], "growth-scores.txt")
    return {**result, "steps": measure_steps(place.folder, options)}


def measure_steps(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of training steps by encoder depth, which are kept in a file."""
    path = folder / "growth-steps.json"
    if not path.exists():
        from results_steps import step_seconds  # here, because it imports fairseq, which takes seconds

        seconds = step_seconds(
            folder / "data-bin",
            ARCH,
            f"{_filled_in(MODEL, options)} {_sizes(options)}",
            [layers for layers, _ in read_stages(options.growth_stages)],
            max_tokens=options.max_tokens,
            seed=options.seed,
            threads=options.threads,
        )
        with atomic_write(path) as file:
            file.write(json.dumps(seconds).encode())
    return json.loads(path.read_text(encoding="utf-8"))


def section(part: Numbers, before: Numbers | None) -> Iterator[str]:
    settings, runs, scores = part["settings"], part["runs"], part["scores"]
    stages = read_stages(settings["growth_stages"])
    depths, deep = " -> ".join(str(layers) for layers, _ in stages), stages[-1][0]
    updates = sum(updates for _, updates in stages)
    yield from (
        "### Grown while it is trained",
        "",
        f"`sdt_transformer` with {deep} encoder and {settings['layers']} decoder layers, trained from the start and "
        f"grown {depths} in one command",
        f"(`--growth-stages {settings['growth_stages']}`). Each: blocks of {BLOCK_SIZE} encoder layers, relative "
        f"positions up to {DISTANCE}, width {settings['width']},",
        f"{settings['heads']} heads, hidden width {4 * settings['width']}, tied embeddings, {updates} updates of at "
        f"most {settings['max_tokens']} tokens in fp32, peak learning rate",
        f"{settings['learning_rate']:g} after {settings['warm_up']} updates; batches, seed and all other settings are "
        "the same. Growing copies the",
        "top-most layers, resets Adam's moments and restarts the learning rate at its peak, if not said otherwise.",
        "From the first restart after warm-up on, the rate is therefore higher than that of the model from the start;",
        "without restarts the two are the same. So a lower loss of the grown model may come from the rate alone.",
        *([f"Interpolation is left out: blocks of {BLOCK_SIZE} layers rule it out."] if "grown-top" in runs else []),
        "",
        *circumstances(part, before),
        "",
        "| model | parameters at first | validation loss | without smoothing | BLEU | chrF | training s | by steps |",
        "|---|---|---|---|---|---|---|---|",
    )
    from_start, grown = _predicted(part, stages)
    for name, run in runs.items():
        cells = measured(run, scores["systems"][name])
        by_steps = from_start if name == FROM_START else grown
        yield row(NAMES[name], f"{run['parameters']:,}", *cells, f"{run['seconds']:.0f}", f"{by_steps:.0f}")
    yield from (
        "",
        f"All end with the parameters of the model from the start, {runs[FROM_START]['parameters']:,}.",
        "",
        *_times(part, stages),
        "",
        "Validation loss by update:",
        "",
        *_validations(runs, stages),
        "",
        *bootstrap(scores, NAMES, "the first"),
        "",
        "One run of each with one seed; the bootstrap resamples the test sentences only. The budget is a small part of",
        "what the models need, and the grown ones spent most of it while they were shallower: this shows neither the",
        "quality nor the savings of a training to the end.",
        "",
        *commands(part, before),
    )


def _times(part: Numbers, stages: Stages) -> Iterator[str]:
    """How the seconds came about, and what the model from the start reaches in those of a grown one."""
    each = _medians(part)
    taken = ", ".join(f"{seconds:.3f} s with {depth}" for depth, seconds in each.items())
    from_start, grown = _predicted(part, stages)
    yield from (
        "Seconds are those of the updates alone, growing included, without start, validation and saving. The trainings",
        "ran one after the other beside other work, so the measured seconds cannot be compared; those by steps can.",
        f"The median of {len(next(iter(part['steps'].values())))} training steps, which all depths made turn about, is",
        f"{taken} encoder layers: growing takes {1 - grown / from_start:.0%} less time.",
    )
    validations = {int(number): state["loss"] for number, state in part["runs"][FROM_START]["valid"].items()}
    same_time = max((number for number in validations if number * each[stages[-1][0]] <= grown), default=None)
    if same_time is not None:
        loss = validations[same_time]
        yield f"After as many seconds the model from the start is past update {same_time}, validation loss {loss:.3f}."


def _medians(part: Numbers) -> dict[int, float]:
    """Seconds of a step by depth."""
    return {int(depth): statistics.median(seconds) for depth, seconds in part["steps"].items()}


def _predicted(part: Numbers, stages: Stages) -> tuple[float, float]:
    """Seconds of all updates from the start and grown, by what a step takes at each depth."""
    each, deep = _medians(part), stages[-1][0]
    from_start = sum(updates * each[deep] for _, updates in stages)
    return from_start, sum(updates * each[layers] for layers, updates in stages)


def _validations(runs: Numbers, stages: Stages) -> Iterator[str]:
    """A table with a row for each validation."""
    yield row("update", "layers", *(NAMES[name] for name in runs))
    yield "|---" * (len(runs) + 2) + "|"
    for number in runs[FROM_START]["valid"]:
        losses = (run["valid"].get(number) for run in runs.values())
        depth = str(_depth_at(int(number), stages))
        yield row(number, depth, *(f"{state['loss']:.3f}" if state else "-" for state in losses))


def _depth_at(update: int, stages: Stages) -> int:
    """The depth with which a grown model made that update."""
    end = 0
    for layers, updates in stages:
        end += updates
        if update <= end:
            return layers
    return stages[-1][0]


GROWTH = Part(
    name="growth",
    options={
        "growth-stages": ("2:400u,4:400u,6:600u", "growth: encoder layers and updates of each stage"),
        "growth-runs": (",".join(RUNS), "growth: what is trained"),
    },
    settings=(
        "layers", "width", "heads", "growth_stages", "growth_runs", "warm_up", "max_tokens", "learning_rate", "seed",
    ),
    measure=measure,
    section=section,
    check=check,
)  # fmt: skip
