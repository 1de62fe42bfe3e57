"""Tables and a figure of what the trainings of a plan of ``recipes/sweep.py`` have found.

python benchmarks/comparison.py recipes/plans/multi30k.toml --figure docs/figures/protocol_multi30k.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from plan_results import (
    Comparison,
    Difference,
    complete_results,
    count_failures,
    difference_of,
    final_results,
    measure,
    processor_minutes,
)
from records import run_program

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import bootstrap_interval, from_text, holm
from fairseq_depthwise.figures import style_of, write_figure
from fairseq_depthwise.tables import Table, spread

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("recipes", "recipes/lib")]
import sweep  # the folders are on the path by the line above
from plans import HOPS, LOSSES, Plan, Run, loss_of

from recipes import system_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of the open form.
PARTS = {"bias", "gain", "skip"}

#: Values of axes of a grid, in which a system was trained.
Values = tuple[tuple[str, float], ...] | None


def tables_of(plan: Plan) -> dict[str, str]:
    """Return the tables of what has ended, in Markdown."""
    return {
        "grid": _grid(plan),
        "final": _final(plan),
        "tests": _tests(plan),
        "compared": _compared(plan),
        "scores": _scores(plan),
        "parts": _parts(plan),
    }


def _grid(plan: Plan) -> str:
    """Return the validation losses of all combinations that were tried, the best in bold."""
    tuned = [system for system in plan.systems if plan.tuned_as(system) == system]
    tried: dict[Values, str] = {}
    for system in tuned:
        for run in plan.grid(system):
            tried[run.values] = ", ".join(f"{axis} {value:g}" for axis, value in run.values or ())
    table = Table("system", *tried.values())
    for system in tuned:
        best = plan.best(system)
        row = {"system": f"`{system}`"}
        for values, column in tried.items():
            result = plan.result(Run(system, 1, values))
            if result is None:
                row[column] = "-"
            elif "failed" in result:
                row[column] = "failed"
            else:
                row[column] = f"{loss_of(result):.3f}"
            if result is not None and best is not None and best.values == values:
                row[column] = f"**{row[column]}**{_edge(plan, values)}"
        table.add(row)
    runs = list(plan.runs())
    ended = [run for run in runs if plan.result(run) is not None]
    return f"{table.markdown()}\n{len(ended)} of {len(runs)} trainings have ended, final ones included.\n"


def _edge(plan: Plan, values: Values) -> str:
    """Return a remark on a best combination beside which a lower or higher value could not be tried."""
    axes = []
    for axis, value in values or ():
        tried = {*plan.axes[axis], *plan.content["beyond"].get(axis, [])}
        is_edge = len(tried) > 1 and value in (min(tried), max(tried))
        if is_edge and value > 0:  # no rate or dropout is below 0
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
            # Before all have ended they are not looked at.
            values = [] if failures is None else [measure(plan, result, name) for result in results]
            row[name] = spread(values, places)
        table.add(row)
    if not table.rows:
        return "No final training has ended yet.\n"
    return table.markdown() + _registered(plan)


def _registered(plan: Plan) -> str:
    """Return the plan's primary comparison and its secondary ones in words, when all of their trainings have ended."""
    complete = complete_results(plan)
    text = ""
    for number, entry in enumerate([plan.content["primary"], *plan.content.get("secondary", [])]):
        comparison = Comparison.of(entry)
        label = "Secondary: " if number else ""
        text += _failures(plan, comparison, label)
        if not complete.keys() >= set(comparison.systems):
            continue
        difference = difference_of(plan, comparison)
        each = ", ".join(map(difference.text, difference.each))
        mean, low, high = map(difference.text, (difference.mean, difference.low, difference.high))
        text += (
            f"\n{label}{comparison}, {comparison.metric}, seed by seed: {each}. Mean {mean}; 95 % interval over seeds "
            f"{low} to {high} (Student){_over_sentences(plan, comparison)}: {comparison.verdict(difference)} at this "
            "size.\n"
        )
    return text


def _failures(plan: Plan, comparison: Comparison, label: str) -> str:
    """Return a sentence on trainings of a comparison that failed, when all have ended; nothing where none did."""
    failures = {system: count_failures(plan, system) for system in comparison.systems}
    if None in failures.values() or not any(failures.values()):
        return ""
    named = ", ".join(f"{count} of `{system}`" for system, count in failures.items() if count)
    return f"\n{label}{comparison}, {comparison.metric}: undecided, since trainings have failed: {named}.\n"


def _over_sentences(plan: Plan, comparison: Comparison) -> str:
    """Return what a bootstrap over seeds and sentences says, which decides nothing; of two systems' BLEU only."""
    if comparison.metric != "sacrebleu" or comparison.minus:
        return ""
    complete = complete_results(plan)
    results, bases = complete[comparison.system], complete[comparison.base]
    seeds = sorted(results.keys() & bases.keys())
    counts = [from_text(results[seed]["sentences"]) for seed in seeds]
    counts_of_base = [from_text(bases[seed]["sentences"]) for seed in seeds]
    low, high = bootstrap_interval(TranslationMetric(comparison.metric), counts, counts_of_base)
    return f", over seeds and sentences {low:+.2f} to {high:+.2f} (bootstrap). By the first"


def _tests(plan: Plan) -> str:
    """Return the scores of each test set; with the metric "hops" also how many steps are answered."""
    tests = list(plan.content["tests"])
    if plan.content["primary"]["metric"] == HOPS:
        tests.append(HOPS)
    table = Table("system", "seeds", *tests)
    for system, results in complete_results(plan).items():
        row = {"system": f"`{system}`", "seeds": str(len(results))}
        for test in tests:
            row[test] = spread([measure(plan, result, test) for result in results.values()], 1)
        table.add(row)
    return table.markdown()


def _compared(plan: Plan) -> str:
    """Return the plan's comparisons of two systems, by default all pairs.

    The p values of all but the primary one are corrected by Holm for their number; those of pairs that cannot be
    compared yet count as 1, so that a number does not change when others come.
    """
    primary = Comparison.of(plan.content["primary"])
    names = [*plan.metrics, "validation loss"]
    complete = complete_results(plan)
    pairs = plan.content.get("pairs")
    if not pairs:
        pairs = [(system, base) for base, system in combinations(plan.systems, 2)]
    differences: dict[tuple[str, str], list[Difference]] = {}
    for system, base in pairs:
        if complete.keys() >= {system, base}:
            differences[system, base] = [difference_of(plan, Comparison(system, base, name)) for name in names]
    if not differences:
        return "No two systems can be compared yet.\n"

    of_primary = set() if primary.minus else {primary.system, primary.base}
    p_values = {}
    for system, base in pairs:
        if {system, base} != of_primary:
            p_values[system, base] = differences[system, base][0].p if (system, base) in differences else 1.0
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    table = Table("system", "against", "seeds", names[0], "p", "p by Holm", *names[1:])
    for pair, of_names in differences.items():
        system, base = pair
        row = {"system": f"`{system}`", "against": f"`{base}`", "seeds": str(len(of_names[0].each))}
        row["p"] = f"{of_names[0].p:.2g}"
        row["p by Holm"] = f"{corrected[pair]:.2g}" if pair in corrected else "primary"
        for name, difference in zip(names, of_names, strict=True):
            row[name] = str(difference)
        table.add(row)
    return table.markdown()


def _scores(plan: Plan) -> str:
    """Return what a first page needs: each system's parameters and scores, and the difference from the base.

    Empty for plans of several shapes or variants of a system, which the recipe does not describe.
    """
    if any("-" in system for system in plan.systems):
        return ""
    base, complete = plan.content["primary"]["base"], complete_results(plan)
    metric, *others = plan.metrics
    table = Table("system", "parameters", "seeds", metric, "difference (95 %)", *others)
    for system, results in complete.items():
        first = next(iter(results.values()))
        row = {
            "system": system_of(plan.recipe, system).about,
            "parameters": f"{first['parameters'] / 1e6:.2f} M",
            "seeds": str(len(results)),
        }
        for name in plan.metrics:
            row[name] = spread([measure(plan, result, name) for result in results.values()], 2)
        if system != base and base in complete:
            row["difference (95 %)"] = str(difference_of(plan, Comparison(system, base, metric)))
        table.add(row)
    return table.markdown()


def _parts(plan: Plan) -> str:
    """Return losses and scores of all sets of parts of the open form, and what a part is worth over all of them.

    ``depthwise_lstm-PART_PART`` are systems of this plan; the one of the recipe's name has those with no part and all.
    Empty for a plan of something else, and before all have been trained.
    """
    results = _results_by_parts(plan)
    if not results:
        return ""
    warm = plan.content["warm_up"] * plan.content["updates"]["final"]
    digits_of_names = dict.fromkeys(LOSSES.values(), 3) | {plan.content["primary"]["metric"]: 2, "chrf": 2}
    digits = {f"validation loss, update {warm:g}": 3, **digits_of_names}

    def measures(result: dict[str, Any]) -> list[float]:
        return [dict(result["valid"])[warm], *(measure(plan, result, name) for name in digits_of_names)]

    # Set of parts -> measures x seeds.
    values = {}
    for parts, of_seeds in results.items():
        values[parts] = np.array([measures(of_seeds[seed]) for seed in plan.content["seeds"]]).T
    table = Table("parts", *digits)
    for parts in sorted(values, key=lambda parts: (len(parts), *sorted(parts))):
        row = {"parts": " + ".join(sorted(parts)) or "none"}
        for column, numbers in zip(digits, values[parts], strict=True):
            row[column] = spread(list(numbers), digits[column])
        table.add(row)
    for part in sorted(max(values, key=len)):
        with_part = np.mean([numbers for parts, numbers in values.items() if part in parts], axis=0)
        without_part = np.mean([numbers for parts, numbers in values.items() if part not in parts], axis=0)
        row = {"parts": f"with - without {part}"}
        for column, one_side, other_side in zip(digits, with_part, without_part, strict=True):
            row[column] = str(Difference.of(one_side, other_side, digits[column]))
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
    results[frozenset()] = final_results(whole, "depthwise_lstm")
    results[all_parts] = final_results(whole, "depthwise_lstm_open")
    if len(results) < 2 ** len(all_parts):
        return {}
    seeds = set(plan.content["seeds"])
    return results if all(seeds <= set(of_seeds) for of_seeds in results.values()) else {}


def draw(plan: Plan, figure: Figure) -> None:
    """Draw losses minus those of the primary comparison's base over updates, and the score of each seed."""
    metric, base = plan.content["primary"]["metric"], plan.content["primary"]["base"]
    complete = complete_results(plan)
    *losses, scores = figure.subplots(1, len(LOSSES) + 1)
    for number, (system, results) in enumerate(complete.items() if base in complete else ()):
        style = style_of(number)
        for axes, (curve, title) in zip(losses, LOSSES.items(), strict=True):
            seeds = [seed for seed in results if seed in complete[base]]
            updates = [update for update, _ in results[seeds[0]][curve]]
            curves = np.array([_losses(results[seed][curve]) for seed in seeds])
            curves = curves - np.array([_losses(complete[base][seed][curve]) for seed in seeds])
            mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=1)
            axes.plot(updates, mean, label=system, markevery=2, markersize=4, **style)
            axes.fill_between(updates, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)
            axes.set(title=f"{title}, minus {base}'s", xlabel="updates", ylim=(-0.25, 0.5))
        of_seeds = [measure(plan, result, metric) for result in results.values()]
        scores.plot([number] * len(of_seeds), of_seeds, linestyle="none", alpha=0.6, **style)
        scores.plot([number - 0.3, number + 0.3], [fmean(of_seeds)] * 2, color=style["color"])
    losses[0].set_ylabel("bits a token")
    losses[0].legend(fontsize="small")
    scores.set(title=f"{metric} of each seed, and mean", xticks=[], xlim=(-0.6, len(complete) - 0.4))


def _losses(curve: Sequence[tuple[int, float]]) -> list[float]:
    return [loss for _, loss in curve]


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--results", type=Path, default=sweep.RESULTS, help="folder (default: docs/records/protocol)")
    parser.add_argument("--figure", metavar="FILE", help="a picture that is written, too, over an earlier one")
    return parser.parse_args(given)


def run(options: argparse.Namespace, _: Sequence[str]) -> None:
    """Print the tables, and draw the figure."""
    plan = Plan(options.plan, options.results)
    print("\n".join(tables_of(plan).values()))
    if options.figure:
        write_figure(options.figure, (13, 4), lambda figure: draw(plan, figure))


if __name__ == "__main__":
    sys.exit(run_program("comparison", parse_options, run, None))
