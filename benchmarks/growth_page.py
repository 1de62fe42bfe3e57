"""The section that ``growth.py`` writes, from the numbers of its parts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from growth_logs import Point, at_steady_speed, time_to_loss
from growth_options import LOSS, PROJECTION, SAVING, STEP
from growth_schedules import (
    BLOCKS,
    DEEP,
    SCHEDULES,
    encoder_share,
    limit_of_saving,
    median_ratio,
    share_of_time,
    shares_of_products,
    time_saved,
)
from results_page import wrapped
from side_by_side import quartiles

#: What the project wants: the saving of the scaled run, how near the prediction is, and the time of a growth step.
SAVING_BAR, POINTS_BAR, STEP_BAR = 0.27, 2.0, 1.0

#: What a schedule may take of the deep model's time to its final loss.
LOSS_GOAL = 0.5

#: The paper's model, for En-De: layers, width, dictionary; and hours from the start on 8 TITAN V.
PAPERS_MODEL = (48, 6, 512, 34000)
PAPERS_HOURS = 19.58

Numbers = Mapping[str, Any]


def page(parts: Mapping[str, Numbers | None]) -> str:
    """The section as Markdown; a part that has not been measured is left out."""
    lines = [
        "# Shallow-to-deep training",
        "",
        "Made by `benchmarks/growth.py`, which prints and runs the commands below. An encoder that grows while it is",
        f"trained ({BLOCKS} blocks in the end) beside one that is deep from the start; every update has the same",
        "micro-batch in both, and so nothing is saved by larger batches at small depth as in the paper. What each part",
        "was measured with is said below it, unless it is as before.",
    ]
    said: set[str] = set()
    for name, section in SECTIONS.items():
        numbers = parts.get(name)
        if numbers:
            lines += ["", *section(numbers), "", *_circumstances(numbers, said), *_commands(numbers, said)]
    return "\n".join([*lines, ""])


# --- saving -------------------------------------------------------------------------------------------------------


def _saving(part: Numbers) -> Iterator[str]:
    settings, rounds, lengths = part["settings"], part["rounds"], _whole(part["lengths"])
    deepest = max(lengths)
    measured = [1 - share_of_time(lengths, one["staged"], one["deep"]) for one in rounds]
    steps = [
        {layers: median_ratio(taken, one["steps"][str(deepest)]) for layers, taken in _whole(one["steps"]).items()}
        for one in rounds
    ]
    predicted = [time_saved(lengths, one) for one in steps]
    share = statistics.median(map(encoder_share, steps))
    sizes = (deepest, settings["decoder_layers"], settings["width"], part["text"]["dictionary"])
    yield from (
        "## Time saved",
        "",
        f"The paper's schedule in small: {_listed(lengths)} layers",
        f"for {_listed(lengths.values())} updates, beside {sum(lengths.values())} updates with {deepest}. Width "
        f"{settings['width']}, {settings['decoder_layers']} decoder layers, batches of",
        f"at most {settings['max_tokens']} tokens. The encoder takes {share:.0%} of the time of a step with {deepest} "
        "layers. Its share, the",
        f"decoder's and the output projection's in the matrix products for a token are {_shares(*sizes)}, in the",
        f"paper's model, after which they were chosen, {_shares(*PAPERS_MODEL)}.",
        "",
        "The two trainings are processes of their own that take turns on one core, update by update; the seconds",
        "are from update to update, growth and fetching the batches included. Saved: 1 - sum n_k r_k / N, r_k the",
        "median in stage k of an update's time by that of the deep model's update beside it, so that a machine whose",
        "speed changes is as fast for both. Predicted: the same with t_k / t_deep in the place of r_k, from short runs",
        f"of all depths in turns ({settings['probe_updates']} updates after {settings['probe_warm_up']}).",
        "",
        "| round | deep s | staged s | saved | predicted | difference in points |",
        "|---|---|---|---|---|---|",
    )
    for number, (one, saved, expected) in enumerate(zip(rounds, measured, predicted, strict=True), start=1):
        yield _row(
            str(number), f"{sum(one['deep']):.1f}", f"{sum(one['staged']):.1f}", f"{saved:.1%}", f"{expected:.1%}",
            f"{100 * (saved - expected):+.1f}",
        )  # fmt: skip
    saved, expected = statistics.median(measured), statistics.median(predicted)
    points = 100 * (saved - expected)
    yield _row("median", "", "", f"{saved:.1%}", f"{expected:.1%}", f"{points:+.1f}")
    yield from (
        "",
        f"- Measured: {saved:.1%} of the time saved, {_spread(measured)}; the bar is {SAVING_BAR:.0%}: "
        f"{_verdict(saved >= SAVING_BAR)}. With nothing",
        f"  but encoder layers it would be {limit_of_saving(lengths, deepest):.1%}.",
        f"- Predicted: {expected:.1%}, {_spread(predicted)}. The medians differ by {abs(points):.1f} points; the bar",
        f"  is {POINTS_BAR:g}: {_verdict(abs(points) <= POINTS_BAR)}.",
        "",
        "| layers | step ms, median of the rounds | of the deepest |",
        "|---|---|---|",
    )
    for layers in sorted(lengths):
        own = statistics.median(statistics.median(one["steps"][str(layers)]) for one in rounds)
        yield _row(str(layers), f"{1000 * own:.0f}", f"{statistics.median(one[layers] for one in steps):.3f}")


# --- projection ---------------------------------------------------------------------------------------------------


def _projection(part: Numbers) -> Iterator[str]:
    settings = part["settings"]
    shares = {
        int(layers): [one / other for one, other in zip(seconds["depth"], seconds["deepest"], strict=True)]
        for layers, seconds in part["depths"].items()
    }
    deepest = max(shares)
    yield from (
        "## Projection to the paper's width",
        "",
        f"Steps of fairseq's trainer in one process, each depth by turns with {deepest} layers: width "
        f"{settings['base_width']}, {settings['base_decoder_layers']} decoder layers,",
        f"dictionary of {settings['vocabulary']:,}, batches of {', '.join(map(str, part['tokens']))} target tokens; "
        f"medians and quartiles of {settings['steps']} steps. The row of",
        f"{deepest} layers compares two models that are alike.",
        "",
        "| layers | step s | of the deepest | quartiles |",
        "|---|---|---|---|",
    )
    for layers, ratios in shares.items():
        low, middle, high = quartiles(ratios)
        own = statistics.median(part["depths"][str(layers)]["depth"])
        yield _row(str(layers), f"{own:.3f}", f"{middle:.3f}", f"{low:.3f} - {high:.3f}")
    if len(shares) < BLOCKS:
        return
    steps = {layers: statistics.median(ratios) for layers, ratios in shares.items()} | {deepest: 1.0}
    yield from (
        "",
        "What the schedules would save of the time of as many updates at full depth, at equal micro-batches; the limit",
        f"counts encoder layers only. Hours are the paper's {PAPERS_HOURS} for {deepest} layers, less that.",
        "",
        "| schedule | projected | limit | hours | the paper's, with larger micro-batches at small depth |",
        "|---|---|---|---|---|",
    )
    for schedule in SCHEDULES.values():
        if not schedule.grows:
            continue
        lengths = {blocks * deepest // BLOCKS: length for blocks, length in schedule.stages}
        saved = time_saved(lengths, steps)
        published = "" if schedule.published is None else f"{schedule.published:.2%}"
        yield _row(
            schedule.meaning, f"{saved:.1%}", f"{limit_of_saving(lengths, deepest):.1%}",
            f"{PAPERS_HOURS * (1 - saved):.1f}", published,
        )  # fmt: skip


# --- growth step --------------------------------------------------------------------------------------------------


def _step(part: Numbers) -> Iterator[str]:
    settings = part["settings"]
    yield from (
        "## The growth step",
        "",
        f"A model of width {settings['base_width']} is grown inside a training run; it has {part['parameters']:,} "
        "parameters then.",
        "The seconds are those of the log, `grew the encoder ... in ... s`.",
        "",
        "| layers | `--growth-optimizer-state` | median s | slowest s | bar | met |",
        "|---|---|---|---|---|---|",
    )
    for case in part["cases"]:
        middle = statistics.median(case["seconds"])
        yield _row(
            f"{case['before']} -> {case['after']}", case["state"], f"{middle:.2f}", f"{max(case['seconds']):.2f}",
            f"{STEP_BAR:g}", _verdict(middle < STEP_BAR),
        )  # fmt: skip


# --- time to a loss -----------------------------------------------------------------------------------------------


def _loss(part: Numbers) -> Iterator[str]:
    settings, runs = part["settings"], part["runs"]
    curves = {name: [Point(**point) for point in run["curve"]] for name, run in runs.items()}
    steps = _pooled([_whole(run["steps"]) for run in runs.values()])
    steady = {name: at_steady_speed(curve, _whole(runs[name]["lengths"]), steps) for name, curve in curves.items()}
    loss = curves[DEEP][-1].loss
    (deepest,) = _whole(runs[DEEP]["lengths"])
    yield from (
        "## Time to a loss",
        "",
        f"{curves[DEEP][-1].updates} updates of at most {settings['max_tokens']} tokens with each schedule, the same "
        "batches and options:",
        f"width {settings['width']}, {settings['decoder_layers']} decoder layers, {deepest} encoder layers in the end, "
        f"peak learning rate {settings['learning_rate']:g}, warm-up as long in",
        "proportion as the paper's. Seconds are of training, without validation and saving. The loss to reach is the",
        f"deep model's last one, {loss:.3f}. The last column counts every update as long as the median update of its",
        "depth in all runs, which takes out what else the machine did meanwhile.",
        "",
        f"| schedule | layers: updates | training s | last loss | s to {loss:.3f} | of the deep one's "
        "| at steady speed |",
        "|---|---|---|---|---|---|---|",
    )
    measured, corrected = (_shares_of_time(one, loss) for one in (curves, steady))
    for name, curve in curves.items():
        lengths = _whole(runs[name]["lengths"])
        seconds = time_to_loss(curve, loss)
        yield _row(
            SCHEDULES[name].meaning, ", ".join(f"{layers}: {updates}" for layers, updates in lengths.items()),
            f"{curve[-1].seconds:.0f}", f"{curve[-1].loss:.3f}",
            *("not reached", "-", "-") if seconds is None else
            (f"{seconds:.0f}", f"{measured[name]:.2f}", f"{corrected[name]:.2f}"),
        )  # fmt: skip
    grown = [name for name in measured if SCHEDULES[name].grows]
    if grown:
        best = min(grown, key=lambda name: measured[name])
        yield from (
            "",
            f"Of those that grow, the fastest ({SCHEDULES[best].meaning}) reaches that loss in",
            f"{measured[best]:.2f} of the deep model's time, at steady speed {corrected[best]:.2f}; the goal is "
            f"{LOSS_GOAL:g}: {_verdict(max(measured[best], corrected[best]) <= LOSS_GOAL)}. Every growth",
            "step restarts the learning rate, which may lower the loss by itself; schedules without growth",
            "(`restarted` and `shallow` of `--schedules`), where they are in the table, show how much.",
        )
    yield from (
        "",
        "One run of each with one seed, a narrow model and a small part of the updates that it needs: this says how",
        "fast the loss falls at first, not where it ends.",
        "",
        "Validation loss by update:",
        "",
        _row("schedule", *(str(point.updates) for point in _some(curves[DEEP]))),
        "|---" * (len(_some(curves[DEEP])) + 1) + "|",
    )
    for name, curve in curves.items():
        yield _row(SCHEDULES[name].meaning, *(f"{point.loss:.3f}" for point in _some(curve)))


def _pooled(runs: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The median over the runs that have a depth."""
    depths = sorted({layers for run in runs for layers in run})
    return {layers: statistics.median(run[layers] for run in runs if layers in run) for layers in depths}


def _shares_of_time(curves: Mapping[str, Sequence[Point]], loss: float) -> dict[str, float]:
    """Time to a loss as a share of the deep model's whole time, for the schedules that reach it."""
    seconds = {name: time_to_loss(curve, loss) for name, curve in curves.items()}
    return {name: one / curves[DEEP][-1].seconds for name, one in seconds.items() if one is not None}


def _some(curve: Sequence[Point]) -> Sequence[Point]:
    """At most seven points of a curve, at even distances, the last one among them."""
    every = -(-len(curve) // 7)
    return curve[::-1][::every][::-1]


SECTIONS: dict[str, Callable[[Numbers], Iterator[str]]] = {
    SAVING: _saving,
    PROJECTION: _projection,
    STEP: _step,
    LOSS: _loss,
}


# --- words and cells ----------------------------------------------------------------------------------------------


def _circumstances(part: Numbers, said: set[str]) -> Iterator[str]:
    """Command, machine, versions and text, without those that were said before; they are from now on."""
    settings, about = part["settings"], part["about"]
    sentences = [
        f"Made by `{part['made_by']}`.",
        f"Machine: {about['machine']}; device {settings['device']}, threads of PyTorch: {settings['threads']}.",
        f"Versions: {about['versions']}.",
    ]
    if "text" in part:
        text = part["text"]
        sentences.append(
            f"Text: `$CORPORA/{settings['corpus']}`, {settings['languages']}; {text['train']:,} pairs to train, "
            f"{text['valid']:,} to validate;\n  {settings['merges']} subword merges, joined dictionary of "
            f"{text['dictionary']:,}."
        )
    yield from (f"- {sentence}" for sentence in sentences if sentence not in said)
    said.update(sentences)


def _commands(part: Numbers, said: set[str]) -> Iterator[str]:
    """What was run as a script, the preparation of the text only once."""
    if "commands" not in part:
        return
    commands = [one for one in (*part["prepared"], *part["commands"]) if one not in said]
    said.update(commands)
    yield from ("", "<details><summary>Commands</summary>", "", "```sh")
    yield f"export OMP_NUM_THREADS={part['settings']['threads']}"
    for command in commands:
        yield from wrapped(command)
    yield from ("```", "", "</details>")


def _whole(numbers: Mapping[str, Any]) -> dict[int, Any]:
    """JSON makes texts of keys."""
    return {int(key): value for key, value in numbers.items()}


def _shares(encoder: int, decoder: int, width: int, dictionary: int) -> str:
    return " : ".join(f"{100 * share:.0f}" for share in shares_of_products(encoder, decoder, width, dictionary))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _spread(shares: Sequence[float]) -> str:
    return f"from {min(shares):.1%} to {max(shares):.1%}"


def _verdict(met: bool) -> str:
    return "met" if met else "**not met**"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
