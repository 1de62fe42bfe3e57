"""Tables and a figure of the results of a plan of ``recipes/sweep.py``.

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
    complete_results,
    count_failures,
    difference_of,
    final_results,
    measures,
    processor_minutes,
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

#: Parts of the open form of depth-wise LSTMs, which variants of a system have some of.
PARTS = {"bias", "gain", "skip"}


def tables_of(plan: Plan) -> dict[str, str]:
    """Return the tables of all trainings that have ended, in Markdown."""
    return {
        "grid": _grid(plan),
        "final": _final(plan),
        "compared": _compared(plan),
        "scores": _scores(plan),
        "parts": _parts(plan),
    }


# --- trainings --------------------------------------------------------------------------------------------------------


def _grid(plan: Plan) -> str:
    """Return the validation losses of all combinations that were tried, the best in bold."""
    tuned = [system for system in plan.systems if plan.tuned_as(system) == system]
    # A column for each combination of any system: the grids of two systems may have grown in different directions.
    columns = {run.values: _title(run) for system in tuned for run in plan.grid(system)}
    table = Table("system", *columns.values())
    for system in tuned:
        row = {"system": f"`{system}`"}
        best = plan.best(system)
        for values, column in columns.items():
            run = Run(system, 1, values)
            row[column] = _loss_cell(plan, run)
            if best is not None and best.values == values and plan.result(run) is not None:
                row[column] = f"**{row[column]}**{_edge(plan, run)}"
        table.add(row)
    runs = list(plan.runs())
    ended = [run for run in runs if plan.result(run) is not None]
    return f"{table.markdown()}\n{len(ended)} of {len(runs)} trainings have ended, final ones included.\n"


def _title(run: Run) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in run.values or ())


def _loss_cell(plan: Plan, run: Run) -> str:
    result = plan.result(run)
    if result is None:
        return "-"
    return "failed" if "failed" in result else f"{loss_of(result):.3f}"


def _edge(plan: Plan, run: Run) -> str:
    """Return a remark on a best combination beside which a lower or higher value could not be tried."""
    axes = []
    for axis, value in run.values or ():
        tried = {*plan.axes[axis], *plan.content["beyond"].get(axis, [])}
        is_edge = len(tried) > 1 and value in (min(tried), max(tried))
        # No rate or dropout is below 0.
        if is_edge and value > 0:
            axes.append(axis)
    return f" (edge of {', '.join(axes)})" if axes else ""


def _final(plan: Plan) -> str:
    """Return losses, scores and processor time of the final trainings, and the registered comparisons below."""
    digits = dict.fromkeys(LOSSES.values(), 3) | dict.fromkeys(plan.metrics, 2)
    table = Table("system", "parameters", *plan.axes, "seeds", *digits, "processor minutes")
    for system in plan.systems:
        results = list(final_results(plan, system).values())
        if not results:
            continue
        # Failed seeds are named, and count as no result.
        failures = count_failures(plan, system)
        first = results[0]
        row = {
            "system": f"`{system}`",
            "parameters": f"{first['parameters']:,}",
            "seeds": f"{len(results)}, {failures} failed" if failures else str(len(results)),
            "processor minutes": spread(processor_minutes(results), 0),
        }
        for axis, value in first["values"].items():
            row[axis] = f"{value:g}"
        for name, places in digits.items():
            # Nobody looks at them before all have ended.
            numbers = [] if failures is None else measures(plan, results, name)
            row[name] = spread(numbers, places)
        table.add(row)
    if not table.rows:
        return "No final training has ended yet.\n"
    return table.markdown() + _registered(plan)


# --- comparisons ------------------------------------------------------------------------------------------------------


def _registered(plan: Plan) -> str:
    """Return the plan's primary comparison and its secondary ones in words, when all of their trainings have ended."""
    complete = complete_results(plan)
    text = ""
    label = ""
    for entry in (plan.content["primary"], *plan.content.get("secondary", [])):
        comparison = Comparison.of(entry)
        text += _failures(plan, comparison, label)
        if complete.keys() >= set(comparison.systems):
            difference = difference_of(plan, comparison)
            each = ", ".join(map(difference.text, difference.each))
            mean, low, high = map(difference.text, (difference.mean, difference.low, difference.high))
            text += (
                f"\n{label}{comparison}, {comparison.metric}, seed by seed: {each}. Mean {mean}; 95 % interval over "
                f"seeds {low} to {high} (Student){_over_sentences(plan, comparison)}: "
                f"{comparison.verdict(difference)} at this size.\n"
            )
        label = "Secondary: "
    return text


def _failures(plan: Plan, comparison: Comparison, label: str) -> str:
    """Return a sentence on failed trainings of a comparison, when all have ended; nothing where none failed."""
    # A mean over the seeds that did not fail would be biased.
    failures = {system: count_failures(plan, system) for system in comparison.systems}
    if None in failures.values() or not any(failures.values()):
        return ""
    named = ", ".join(f"{count} of `{system}`" for system, count in failures.items() if count)
    return f"\n{label}{comparison}, {comparison.metric}: undecided, since trainings have failed: {named}.\n"


def _over_sentences(plan: Plan, comparison: Comparison) -> str:
    """Return a bootstrap's interval over seeds and sentences, which decides nothing; of two systems' BLEU only."""
    if comparison.metric != "sacrebleu" or comparison.minus:
        return ""
    complete = complete_results(plan)
    results, base_results = complete[comparison.system], complete[comparison.base]
    seeds = sorted(results.keys() & base_results.keys())
    counts = [from_text(results[seed]["sentences"]) for seed in seeds]
    base_counts = [from_text(base_results[seed]["sentences"]) for seed in seeds]
    low, high = bootstrap_interval(TranslationMetric(comparison.metric), counts, base_counts)
    return f", over seeds and sentences {low:+.2f} to {high:+.2f} (bootstrap). By the first"


def _compared(plan: Plan) -> str:
    """Return the plan's comparisons of two systems, by default all pairs.

    The p values of all but the primary one are corrected by Holm for their number; those of pairs that cannot be
    compared yet count as 1, so that a number does not change when others come.
    """
    names = [*plan.metrics, "validation loss"]
    complete = complete_results(plan)
    pairs = plan.content.get("pairs") or [(system, base) for base, system in combinations(plan.systems, 2)]
    differences: dict[tuple[str, str], list[Difference]] = {}
    for system, base in pairs:
        if complete.keys() >= {system, base}:
            differences[system, base] = [difference_of(plan, Comparison(system, base, name)) for name in names]
    if not differences:
        return "No two systems can be compared yet.\n"

    primary = Comparison.of(plan.content["primary"])
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


def _scores(plan: Plan) -> str:
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
            row["difference (95 %)"] = str(difference_of(plan, Comparison(system, base, metric)))
        table.add(row)
    return table.markdown()


# --- parts of the open form -------------------------------------------------------------------------------------------


def _parts(plan: Plan) -> str:
    """Return losses and scores of all sets of parts of the open form, and the effect of each part over all of them.

    ``depthwise_lstm-PART_PART`` are systems of this plan; the one of the recipe's name has those with no part and all.
    Empty for a plan of something else, and before all have been trained.
    """
    results = _results_by_parts(plan)
    if not results:
        return ""
    warm = plan.content["warm_up"] * plan.content["updates"]["final"]
    digits = {f"validation loss, update {warm:g}": 3} | dict.fromkeys(LOSSES.values(), 3)
    digits |= {plan.content["primary"]["metric"]: 2, "chrf": 2}
    after_warm_up, *names = digits
    table = Table("parts", *digits)

    # Set of parts -> column -> its number with each seed.
    numbers: dict[frozenset[str], dict[str, np.ndarray]] = {}
    for parts in sorted(results, key=lambda parts: (len(parts), *sorted(parts))):
        of_seeds = [results[parts][seed] for seed in plan.content["seeds"]]
        numbers[parts] = {name: np.array(measures(plan, of_seeds, name)) for name in names}
        numbers[parts][after_warm_up] = np.array([dict(result["valid"])[warm] for result in of_seeds])
        row = {"parts": " + ".join(sorted(parts)) or "none"}
        for column, values in numbers[parts].items():
            row[column] = spread(list(values), digits[column])
        table.add(row)

    for part in sorted(max(numbers, key=len)):
        row = {"parts": f"with - without {part}"}
        for column in digits:
            with_part = np.mean([columns[column] for parts, columns in numbers.items() if part in parts], axis=0)
            without_part = np.mean([columns[column] for parts, columns in numbers.items() if part not in parts], axis=0)
            row[column] = str(Difference.of(with_part, without_part, digits[column]))
        table.add(row)
    return table.markdown()


def _results_by_parts(plan: Plan) -> dict[frozenset[str], dict[int, dict[str, Any]]]:
    """Return the final results of all sets of parts of the open form, by seed; empty unless all are there."""
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
    # The two ends are systems of the recipe's own plan.
    results[frozenset()] = final_results(whole, "depthwise_lstm")
    results[all_parts] = final_results(whole, "depthwise_lstm_open")
    # All sets of parts, or a part's effect would be confounded with others'.
    if len(results) < 2 ** len(all_parts):
        return {}
    seeds = set(plan.content["seeds"])
    return results if all(seeds <= of_seeds.keys() for of_seeds in results.values()) else {}


# --- figure -----------------------------------------------------------------------------------------------------------


def draw(plan: Plan, figure: Figure) -> None:
    """Draw losses minus those of the primary comparison's base over updates, and the score of each seed."""
    metric, base = plan.content["primary"]["metric"], plan.content["primary"]["base"]
    complete = complete_results(plan)
    *losses, scores = figure.subplots(1, len(LOSSES) + 1)
    for number, (system, results) in enumerate(complete.items() if base in complete else ()):
        style = style_of(number)
        seeds = [seed for seed in results if seed in complete[base]]
        for axes, (curve, title) in zip(losses, LOSSES.items(), strict=True):
            updates = [update for update, _ in results[seeds[0]][curve]]
            curves = _curves(results, curve, seeds) - _curves(complete[base], curve, seeds)
            mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=1)
            axes.plot(updates, mean, label=system, markevery=2, markersize=4, **style)
            axes.fill_between(updates, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)
            axes.set(title=f"{title}, minus {base}'s", xlabel="updates", ylim=(-0.25, 0.5))
        of_seeds = measures(plan, results.values(), metric)
        scores.plot([number] * len(of_seeds), of_seeds, linestyle="none", alpha=0.6, **style)
        scores.plot([number - 0.3, number + 0.3], [fmean(of_seeds)] * 2, color=style["color"])
    losses[0].set_ylabel("bits a token")
    losses[0].legend(fontsize="small")
    scores.set(title=f"{metric} of each seed, and mean", xticks=[], xlim=(-0.6, len(complete) - 0.4))


def _curves(results: dict[int, dict[str, Any]], curve: str, seeds: Sequence[int]) -> np.ndarray:
    """Return losses (seeds x updates)."""
    return np.array([np.array(results[seed][curve])[:, 1] for seed in seeds])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--results", type=Path, default=sweep.RESULTS, help="folder (default: docs/records/protocol)")
    parser.add_argument("--figure", metavar="FILE", help="a picture that is written, too, over an earlier one")
    options = parser.parse_args()
    plan = Plan(options.plan, options.results)
    print("\n".join(tables_of(plan).values()))
    if options.figure:
        write_figure(options.figure, (13, 4), lambda figure: draw(plan, figure))


if __name__ == "__main__":
    run_step(main)
