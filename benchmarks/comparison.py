"""Make tables and a figure from the results of a plan of ``recipes/sweep.py``.

python benchmarks/comparison.py recipes/plans/multi30k.toml --figure docs/figures/protocol_multi30k.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import records  # noqa: F401  # puts the folders of the recipes on the path
import sweep
from plan_results import (
    Comparison,
    Difference,
    collect_processor_minutes,
    complete_results,
    compute_difference,
    count_failures,
    final_results,
    measures,
)
from plans import LOSSES, Plan, Run, loss_of
from recipe_step import run_step

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import bootstrap_interval, from_text, holm
from fairseq_depthwise.figures import style_of, write_figure
from fairseq_depthwise.tables import Table, spread
from recipes import system_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Parts of the open form of the depth-wise LSTM; each variant of the system has some of them.
PARTS = {"bias", "gain", "skip"}


def make_tables(plan: Plan) -> dict[str, str]:
    """Return the tables of all trainings that have ended, in Markdown."""
    return {
        "grid": _make_grid_table(plan),
        "final": _make_final_table(plan),
        "compared": _make_comparison_table(plan),
        "scores": _make_score_table(plan),
        "parts": _make_parts_table(plan),
    }


# --- trainings --------------------------------------------------------------------------------------------------------


def _make_grid_table(plan: Plan) -> str:
    """Return the validation losses of all combinations that were tried, the best in bold."""
    tuned = [system for system in plan.systems if plan.tuned_as(system) == system]
    # A column for every combination that any system has: grids of two systems may have grown in different directions.
    columns = {run.values: _format_values(run) for system in tuned for run in plan.grid(system)}
    table = Table("system", *columns.values())
    for system in tuned:
        row = {"system": f"`{system}`"}
        best = plan.best(system)
        for values, column in columns.items():
            run = Run(system, 1, values)
            row[column] = _format_loss(plan, run)
            if best is not None and best.values == values and plan.result(run) is not None:
                row[column] = f"**{row[column]}**{_mark_edge(plan, run)}"
        table.add(row)
    runs = list(plan.runs())
    ended = [run for run in runs if plan.result(run) is not None]
    return f"{table.markdown()}\n{len(ended)} of {len(runs)} trainings have ended, final ones included.\n"


def _format_values(run: Run) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in run.values or ())


def _format_loss(plan: Plan, run: Run) -> str:
    result = plan.result(run)
    if result is None:
        return "-"
    return "failed" if "failed" in result else f"{loss_of(result):.3f}"


def _mark_edge(plan: Plan, run: Run) -> str:
    """Return a remark if the best combination is at an edge of the grid, where no further value could be tried."""
    axes = []
    for axis, value in run.values or ():
        tried = {*plan.axes[axis], *plan.content["beyond"].get(axis, [])}
        is_edge = len(tried) > 1 and value in (min(tried), max(tried))
        # No rate or dropout is below 0.
        if is_edge and value > 0:
            axes.append(axis)
    return f" (edge of {', '.join(axes)})" if axes else ""


def _make_final_table(plan: Plan) -> str:
    """Return losses, scores and processor time of the final trainings, followed by the registered comparisons."""
    digits = dict.fromkeys(LOSSES.values(), 3) | dict.fromkeys(plan.metrics, 2)
    table = Table("system", "parameters", *plan.axes, "seeds", *digits, "processor minutes")
    for system in plan.systems:
        results = list(final_results(plan, system).values())
        if not results:
            continue
        # Failed seeds are reported, but are not among the results.
        failures = count_failures(plan, system)
        first = results[0]
        row = {
            "system": f"`{system}`",
            "parameters": f"{first['parameters']:,}",
            "seeds": f"{len(results)}, {failures} failed" if failures else str(len(results)),
            "processor minutes": spread(collect_processor_minutes(results), 0),
        }
        for axis, value in first["values"].items():
            row[axis] = f"{value:g}"
        for name, places in digits.items():
            # Hidden until all seeds have ended: nobody looks at interim results of a registered plan.
            numbers = [] if failures is None else measures(plan, results, name)
            row[name] = spread(numbers, places)
        table.add(row)
    if not table.rows:
        return "No final training has ended yet.\n"
    return table.markdown() + _describe_registered(plan)


# --- comparisons ------------------------------------------------------------------------------------------------------


def _describe_registered(plan: Plan) -> str:
    """Return the plan's primary comparison and its secondary ones in words, when all of their trainings have ended."""
    complete = complete_results(plan)
    text = ""
    label = ""
    for entry in (plan.content["primary"], *plan.content.get("secondary", [])):
        comparison = Comparison.of(entry)
        text += _describe_failures(plan, comparison, label)
        if complete.keys() >= set(comparison.systems):
            difference = compute_difference(plan, comparison)
            each = ", ".join(map(difference.text, difference.each))
            mean, low, high = map(difference.text, (difference.mean, difference.low, difference.high))
            text += (
                f"\n{label}{comparison}, {comparison.metric}, seed by seed: {each}. Mean {mean}; 95 % interval over "
                f"seeds {low} to {high} (Student){_describe_bootstrap(plan, comparison)}: "
                f"{comparison.verdict(difference)} at this size.\n"
            )
        label = "Secondary: "
    return text


def _describe_failures(plan: Plan, comparison: Comparison, label: str) -> str:
    """Return a sentence on failed trainings of a comparison, when all have ended; nothing where none failed."""
    # A mean over the seeds that did not fail would be biased.
    failures = {system: count_failures(plan, system) for system in comparison.systems}
    if None in failures.values() or not any(failures.values()):
        return ""
    named = ", ".join(f"{count} of `{system}`" for system, count in failures.items() if count)
    return f"\n{label}{comparison}, {comparison.metric}: undecided, since trainings have failed: {named}.\n"


def _describe_bootstrap(plan: Plan, comparison: Comparison) -> str:
    """Return a bootstrap's interval over seeds and sentences, which decides nothing; of two systems' BLEU only."""
    # N-gram counts are recorded for sacreBLEU only, and the bootstrap compares two systems, not four.
    if comparison.metric != "sacrebleu" or comparison.minus:
        return ""
    complete = complete_results(plan)
    results, base_results = complete[comparison.system], complete[comparison.base]
    seeds = sorted(results.keys() & base_results.keys())
    counts = [from_text(results[seed]["sentences"]) for seed in seeds]
    base_counts = [from_text(base_results[seed]["sentences"]) for seed in seeds]
    low, high = bootstrap_interval(TranslationMetric(comparison.metric), counts, base_counts)
    return f", over seeds and sentences {low:+.2f} to {high:+.2f} (bootstrap). By the first"


def _make_comparison_table(plan: Plan) -> str:
    """Return the plan's comparisons of two systems, by default all pairs.

    The p values of all but the primary one are corrected by Holm for their number; those of pairs that cannot be
    compared yet count as 1, so that a number does not change when others come.
    """
    names = [*plan.metrics, "validation loss"]
    complete = complete_results(plan)
    # Plans without named pairs have few systems.
    pairs = plan.content.get("pairs") or [(system, base) for base, system in combinations(plan.systems, 2)]
    differences: dict[tuple[str, str], list[Difference]] = {}
    for system, base in pairs:
        if complete.keys() >= {system, base}:
            differences[system, base] = [compute_difference(plan, Comparison(system, base, name)) for name in names]
    if not differences:
        return "No two systems can be compared yet.\n"

    primary = Comparison.of(plan.content["primary"])
    # As a set: a pair may name system and base in reverse. A difference of differences is not a pair.
    primary_pair = set() if primary.minus else {primary.system, primary.base}
    p_values = {}
    for system, base in pairs:
        if {system, base} != primary_pair:
            p_values[system, base] = differences[system, base][0].p if (system, base) in differences else 1.0
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))

    table = Table("system", "against", "seeds", names[0], "p", "p by Holm", *names[1:])
    for (system, base), of_names in differences.items():
        row = {"system": f"`{system}`", "against": f"`{base}`", "seeds": str(len(of_names[0].each))}
        row["p"] = f"{of_names[0].p:.2g}"
        row["p by Holm"] = f"{corrected[system, base]:.2g}" if (system, base) in corrected else "primary"
        row |= dict(zip(names, map(str, of_names), strict=True))
        table.add(row)
    return table.markdown()


def _make_score_table(plan: Plan) -> str:
    """Return a table for a first page: each system's parameters and scores, and the difference from the base.

    Empty for plans of several shapes or variants of a system, which the recipe does not describe.
    """
    if any("-" in system for system in plan.systems):
        return ""
    base = plan.content["primary"]["base"]
    complete = complete_results(plan)
    metric, *further = plan.metrics
    table = Table("system", "parameters", "seeds", metric, "difference (95 %)", *further)
    for system, results in complete.items():
        first = next(iter(results.values()))
        row = {
            "system": system_of(plan.recipe, system).about,
            "parameters": f"{first['parameters'] / 1e6:.2f} M",
            "seeds": str(len(results)),
        }
        for name in plan.metrics:
            row[name] = spread(measures(plan, results.values(), name), 2)
        if system != base and base in complete:
            row["difference (95 %)"] = str(compute_difference(plan, Comparison(system, base, metric)))
        table.add(row)
    return table.markdown()


# --- parts of the open form -------------------------------------------------------------------------------------------


def _make_parts_table(plan: Plan) -> str:
    """Return losses and scores with each subset of the parts of the open form, and the mean effect of each part.

    Subsets are systems of this plan, named ``depthwise_lstm-PART_PART``; those with no part and with all are systems of
    the recipe's own plan. Empty for other plans, and before all subsets have been trained.
    """
    results = _group_by_parts(plan)
    if not results:
        return ""
    # The update at which the learning rate is highest.
    warm = plan.content["warm_up"] * plan.content["updates"]["final"]
    digits = {f"validation loss, update {warm:g}": 3} | dict.fromkeys(LOSSES.values(), 3)
    digits |= {plan.content["primary"]["metric"]: 2, "chrf": 2}
    after_warm_up, *names = digits
    table = Table("parts", *digits)

    # Subset of parts -> column -> number with each seed.
    numbers: dict[frozenset[str], dict[str, np.ndarray]] = {}
    for parts in sorted(results, key=lambda parts: (len(parts), *sorted(parts))):
        seed_results = [results[parts][seed] for seed in plan.content["seeds"]]
        numbers[parts] = {name: np.array(measures(plan, seed_results, name)) for name in names}
        # "valid" holds pairs of update and loss.
        numbers[parts][after_warm_up] = np.array([dict(result["valid"])[warm] for result in seed_results])
        row = {"parts": " + ".join(sorted(parts)) or "none"}
        for column, values in numbers[parts].items():
            row[column] = spread(list(values), digits[column])
        table.add(row)

    for part in sorted(max(numbers, key=len)):
        row = {"parts": f"with - without {part}"}
        for column in digits:
            # For each seed, means over all subsets with the part and without it: all other parts cancel out.
            with_part = np.mean([columns[column] for parts, columns in numbers.items() if part in parts], axis=0)
            without_part = np.mean([columns[column] for parts, columns in numbers.items() if part not in parts], axis=0)
            row[column] = str(Difference.of(with_part, without_part, digits[column]))
        table.add(row)
    return table.markdown()


def _group_by_parts(plan: Plan) -> dict[frozenset[str], dict[int, dict[str, Any]]]:
    """Return subset of parts -> seed -> final result; empty unless all subsets of the open form have been trained."""
    results = {}
    for name in plan.systems:
        system, _, variant = name.partition("-")
        parts = frozenset(variant.split("_"))
        if system == "depthwise_lstm" and parts <= PARTS:
            results[parts] = final_results(plan, name)
    if not results:
        return {}
    whole = Plan(sweep.PLANS / f"{plan.recipe}.toml", plan.results.parent)
    all_parts = frozenset().union(*results)
    # The subsets with no part and with all parts are systems of the recipe's own plan.
    results[frozenset()] = final_results(whole, "depthwise_lstm")
    results[all_parts] = final_results(whole, "depthwise_lstm_open")
    # With a subset missing, the effect of a part would be confounded with that of others.
    if len(results) < 2 ** len(all_parts):
        return {}
    seeds = set(plan.content["seeds"])
    return results if all(seeds <= results_by_seed.keys() for results_by_seed in results.values()) else {}


# --- figure -----------------------------------------------------------------------------------------------------------


#: Width and height of a plan's figure, in inches.
SIZE = (8.0, 7.0)
#: Largest difference of losses, in bits, up to which their axis is linear.
LINEAR = 0.2


def draw(plan: Plan, figure: Figure) -> None:
    """Draw losses minus those of the primary comparison's base over updates, and the score of each seed."""
    metric, base = plan.content["primary"]["metric"], plan.content["primary"]["base"]
    complete = complete_results(plan)
    # All curves are differences from the base: without it, nothing is drawn.
    systems = list(complete) if base in complete else []
    upper, lower = figure.subfigures(2, 1, height_ratios=(3, 2))
    panels = upper.subplots(1, len(LOSSES))
    scores = lower.subplots()
    lines = []
    # The base is drawn last, so that its line at 0 is seen.
    for number, system in reversed(list(enumerate(systems))):
        style, results = style_of(number), complete[system]
        seeds = [seed for seed in results if seed in complete[base]]
        for axes, curve in zip(panels, LOSSES, strict=True):
            updates = [update for update, _ in results[seeds[0]][curve]]
            curves = _stack_curves(results, curve, seeds) - _stack_curves(complete[base], curve, seeds)
            # curves: seeds x updates
            mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=1)
            (line,) = axes.plot(updates, mean, markevery=2, markersize=4, **style)
            axes.fill_between(updates, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)
        lines.append(line)
        seed_scores = measures(plan, results.values(), metric)
        scores.plot(seed_scores, [number] * len(seed_scores), linestyle="none", alpha=0.6, **style)
        scores.plot([fmean(seed_scores)] * 2, [number - 0.3, number + 0.3], color=style["color"])
    for axes, title in zip(panels, LOSSES.values(), strict=True):
        axes.set_title(f"{title},\nminus {base}'s", fontsize=10)
        axes.set(xlabel="updates")
        # Near 0 linear, beyond it logarithmic: some systems begin or end far from the base.
        axes.set_yscale("symlog", linthresh=LINEAR, linscale=1.5)
        ticks = (-1, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(visible=True)
    panels[0].set_ylabel(f"bits a token, logarithmic beyond ±{LINEAR}")
    scores.set_yticks(range(len(systems)), systems)
    scores.invert_yaxis()
    scores.set_title(f"{metric} of each seed, and mean", fontsize=10)
    scores.grid(visible=True, axis="x")
    upper.legend(lines[::-1], systems, loc="outside lower center", ncols=2)


def _stack_curves(results: dict[int, dict[str, Any]], curve: str, seeds: Sequence[int]) -> np.ndarray:
    """Return the losses of a curve, seeds x updates."""
    return np.array([np.array(results[seed][curve])[:, 1] for seed in seeds])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument(
        "--results", type=Path, default=sweep.RESULTS, help="folder of results (default: docs/records/protocol)"
    )
    parser.add_argument("--figure", metavar="FILE", help="also draw a figure into this file, replacing an earlier one")
    options = parser.parse_args()
    plan = Plan(options.plan, options.results)
    print("\n".join(make_tables(plan).values()))
    if options.figure:
        write_figure(options.figure, SIZE, lambda figure: draw(plan, figure))


if __name__ == "__main__":
    run_step(main)
