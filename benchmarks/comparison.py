"""Tables and a figure of what the trainings of a plan of ``recipes/sweep.py`` have found.

python benchmarks/comparison.py recipes/plans/multi30k.toml --figure docs/figures/protocol_multi30k.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from records import run_program
from scipy.stats import ttest_1samp

from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import bootstrap_interval, from_text, holm
from fairseq_depthwise.figures import style_of, write_figure
from fairseq_depthwise.tables import markdown, spread

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("recipes", "recipes/lib")]
import sweep  # the folders are on the path by the line above
from plans import HOPS, LOSSES, Plan, Run, loss_of

from recipes import system_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of the open form.
PARTS = {"bias", "gain", "skip"}


class Difference(NamedTuple):
    """A system's scores minus a base's, seed by seed."""

    each: list[float]
    low: float
    high: float
    p: float
    digits: int = 2

    @classmethod
    def of(cls, systems: Sequence[float], bases: Sequence[float], digits: int = 2) -> Difference:
        """Compare pairs by Student's test, two-sided; the interval has 95 %."""
        each = [system - base for system, base in zip(systems, bases, strict=True)]
        test = ttest_1samp(each, 0)
        low, high = test.confidence_interval(0.95)
        p = 1.0 if not any(each) else float(test.pvalue)
        return cls(each, float(low), float(high), p, digits)

    def __str__(self) -> str:
        mean, low, high = (f"{one:+.{self.digits}f}" for one in (fmean(self.each), self.low, self.high))
        return f"{mean} ({low} to {high})"


@dataclass(frozen=True)
class Comparison:
    """A registered comparison of two systems, or of the same two at two depths.

    Attributes:
        system, base: whose difference it is, seed by seed.
        metric: a metric of the plan, a value of :data:`LOSSES`, or "hops" (:func:`hops_answered`).
        margin: how much worse than the base the system may be.
        minus: a system and a base whose difference is subtracted.
    """

    system: str
    base: str
    metric: str
    margin: float = 0.0
    minus: tuple[str, str] | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Comparison:
        """Return the comparison of an entry of a plan."""
        minus = entry.get("minus")
        pair = (minus["system"], minus["base"]) if minus else None
        return cls(entry["system"], entry["base"], entry["metric"], entry.get("margin", 0.0), pair)

    @property
    def systems(self) -> list[str]:
        """All systems that it needs."""
        return [self.system, self.base, *(self.minus or ())]

    def verdict(self, difference: Difference) -> str:
        """Return what the 95 % interval says of "better than the base, or not worse by more than the margin"."""
        low, high = difference.low, difference.high
        if self.metric in LOSSES.values():  # the lower the better
            low, high = -high, -low
        if low > -self.margin:
            return "supported"
        return "not reproduced" if high < -self.margin else "undecided"

    def __str__(self) -> str:
        text = f"`{self.system}` against `{self.base}`"
        if self.minus:
            text += f" minus `{self.minus[0]}` against `{self.minus[1]}`"
        if self.margin:
            text += f", not worse by more than {self.margin:g}"
        return text


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
    tuned = [system for system in plan.systems if plan.tuned_as(system) == system]
    combinations = list(dict.fromkeys(run.values for system in tuned for run in plan.grid(system)))
    lines = [["system", *(", ".join(f"{axis} {value:g}" for axis, value in values or ()) for values in combinations)]]
    for system in tuned:
        best, cells = plan.best(system), []
        for values in combinations:
            result = plan.result(Run(system, 1, values))
            loss = "-" if result is None else "failed" if "failed" in result else f"{loss_of(result):.3f}"
            is_best = best is not None and best.values == values and result is not None
            cells.append(f"**{loss}**{_edge(plan, values)}" if is_best else loss)
        lines.append([f"`{system}`", *cells])
    ended = [plan.result(run) is not None for run in plan.runs()]
    return markdown(lines) + f"\n{sum(ended)} of {len(ended)} trainings have ended, final ones included.\n"


def _edge(plan: Plan, values: tuple[tuple[str, float], ...] | None) -> str:
    """Return a remark on a best combination beside which a lower or higher value could not be tried."""
    axes = []
    for axis, value in values or ():
        tried = {*plan.axes[axis], *plan.content["beyond"].get(axis, [])}
        if len(tried) > 1 and value in (min(tried), max(tried)) and value > 0:  # no rate or dropout is below 0
            axes.append(axis)
    return f" (edge of {', '.join(axes)})" if axes else ""


def _final(plan: Plan) -> str:
    lines = [["system", "parameters", *plan.axes, "seeds", *LOSSES.values(), *plan.metrics, "processor minutes"]]
    for system in plan.systems:
        results = list(_finals(plan, system).values())
        if not results:
            continue
        failed = _failures(plan, system)
        shown = results if failed is not None else []  # before all have ended they are not looked at
        columns = [[measure(plan, result, name) for result in shown] for name in (*LOSSES.values(), *plan.metrics)]
        digits = [*(3 for _ in LOSSES), *(2 for _ in plan.metrics), 0]
        cells = [spread(values, places) for values, places in zip((*columns, _minutes(results)), digits, strict=True)]
        chosen = [f"{value:g}" for value in results[0]["values"].values()]
        seeds = str(len(results)) + (f", {failed} failed" if failed else "")
        lines.append([f"`{system}`", f"{results[0]['parameters']:,}", *chosen, seeds, *cells])
    return markdown(lines) + _registered(plan) if len(lines) > 1 else "No final training has ended yet.\n"


def _failures(plan: Plan, system: str) -> int | None:
    """Return how many final trainings of a system have failed; None before all have ended.

    If the whole grid has failed, there is nothing to train with, and all have.
    """
    grid = plan.grid(plan.tuned_as(system))
    if plan.best(system) is None and all(plan.result(run) is not None for run in grid):
        return len(plan.seeds(system))
    results = [plan.result(Run(system, seed)) for seed in plan.seeds(system)]
    ended = [result for result in results if result is not None]
    if len(ended) < len(results):
        return None
    return sum("failed" in result for result in ended)


def _minutes(results: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the processor's minutes of the trainings of which they are known.

    Those beside a GPU are not comparable with those without, so only the trainings with most GPUs count. Earlier
    results of trainings that were stopped have the last part's seconds alone.
    """
    gpus = max(result["gpus"] for result in results)
    known = [result for result in results if result["gpus"] == gpus and result["seconds"] is not None]
    return [result["seconds"] / 60 for result in known if "parts" in result or not result["from_update"]]


def measure(plan: Plan, result: Mapping[str, Any], name: str) -> float:
    """Return a number of a final training: a loss at its end, a score, or "hops"."""
    for curve, loss in LOSSES.items():
        if name == loss:
            return float(result[curve][-1][1])
    if name == HOPS:
        return float(hops_answered([result["scores"][test] for test in plan.content["tests"]]))
    return float(result["scores"][name])


def hops_answered(accuracies: Sequence[float]) -> int:
    """Return how many steps a model can follow: the most of which it, and all fewer, are answered in 90 % of cases.

    Args:
        accuracies: in percent, of 1 step, of 2 and so on.
    """
    answered = 0
    for accuracy in accuracies:
        if accuracy < 90:
            break
        answered += 1
    return answered


def _finals(plan: Plan, system: str) -> dict[int, dict[str, Any]]:
    """Return the results of a system's final trainings by seed."""
    results = {}
    for seed in plan.seeds(system):
        result = plan.result(Run(system, seed))
        if result is not None and "failed" not in result:
            results[seed] = result
    return results


def _complete(plan: Plan) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the results by seed of the systems of which all seeds have ended, where these are several."""
    complete = {}
    for system in plan.systems:
        results = _finals(plan, system)
        if len(results) == len(plan.seeds(system)) > 1:
            complete[system] = results
    return complete


def _registered(plan: Plan) -> str:
    """Return the plan's primary comparison and its secondary ones in words, when all of their trainings have ended."""
    complete = _complete(plan)
    text = ""
    for number, entry in enumerate([plan.content["primary"], *plan.content.get("secondary", [])]):
        comparison = Comparison.of(entry)
        label = "Secondary: " if number else ""
        failures = [_failures(plan, system) for system in comparison.systems]
        if any(failures) and None not in failures:
            text += f"\n{label}{comparison}, {comparison.metric}: undecided, since trainings have failed: "
            text += ", ".join(f"{n} of `{system}`" for system, n in zip(comparison.systems, failures, strict=True) if n)
            text += ".\n"
        if not complete.keys() >= {*comparison.systems}:
            continue
        difference = difference_of(plan, comparison)
        digits = difference.digits
        each = ", ".join(f"{value:+.{digits}f}" for value in difference.each)
        text += (
            f"\n{label}{comparison}, {comparison.metric}, seed by seed: {each}. Mean "
            f"{fmean(difference.each):+.{digits}f}; 95 % interval over seeds {difference.low:+.{digits}f} to "
            f"{difference.high:+.{digits}f} (Student){_over_sentences(plan, comparison)}: "
            f"{comparison.verdict(difference)} at this size.\n"
        )
    return text


def difference_of(plan: Plan, comparison: Comparison) -> Difference:
    """Return a comparison's differences, over the seeds that all of its systems have."""
    complete = _complete(plan)
    seeds = set.intersection(*({*complete[system]} for system in comparison.systems))
    numbers = {
        system: np.array([measure(plan, complete[system][seed], comparison.metric) for seed in sorted(seeds)])
        for system in comparison.systems
    }
    digits = 3 if comparison.metric in LOSSES.values() else 2
    differences = numbers[comparison.system] - numbers[comparison.base]
    if comparison.minus:
        differences = differences - (numbers[comparison.minus[0]] - numbers[comparison.minus[1]])
    return Difference.of(differences, np.zeros(len(differences)), digits)


def _over_sentences(plan: Plan, comparison: Comparison) -> str:
    """Return what a bootstrap over seeds and sentences says, which decides nothing; of two systems' BLEU only."""
    if comparison.metric != "sacrebleu" or comparison.minus:
        return ""
    complete = _complete(plan)
    seeds = sorted({*complete[comparison.system]} & {*complete[comparison.base]})
    sides = (comparison.system, comparison.base)
    counts = ([from_text(complete[side][seed]["sentences"]) for seed in seeds] for side in sides)
    low, high = bootstrap_interval(TranslationMetric(comparison.metric), *counts)
    return f", over seeds and sentences {low:+.2f} to {high:+.2f} (bootstrap). By the first"


def _tests(plan: Plan) -> str:
    """Return the scores of each test set; with the metric "hops" also how many steps are answered."""
    tests = [*plan.content["tests"]]
    if plan.content["primary"]["metric"] == HOPS:
        tests += [HOPS]
    lines = [["system", "seeds", *tests]]
    for system, results in _complete(plan).items():
        cells = [spread([measure(plan, result, test) for result in results.values()], 1) for test in tests]
        lines.append([f"`{system}`", str(len(results)), *cells])
    return markdown(lines)


def _compared(plan: Plan) -> str:
    """Return the plan's comparisons of two systems, by default all pairs.

    The p values of all but the primary one are corrected by Holm for their number; those of pairs that cannot be
    compared yet count as 1, so that a number does not change when others come.
    """
    chosen = Comparison.of(plan.content["primary"])
    names = [*plan.metrics, "validation loss"]
    complete = _complete(plan)
    pairs = plan.content.get("pairs") or [(system, base) for base, system in combinations(plan.systems, 2)]
    differences: dict[tuple[str, str], list[Difference]] = {}
    for system, base in pairs:
        if complete.keys() >= {system, base}:
            differences[system, base] = [difference_of(plan, Comparison(system, base, name)) for name in names]
    primary = set() if chosen.minus else {chosen.system, chosen.base}
    family = [(system, base) for system, base in pairs if {system, base} != primary]
    ps = [differences[pair][0].p if pair in differences else 1.0 for pair in family]
    corrected = dict(zip(family, holm(ps), strict=True))
    lines = [["system", "against", "seeds", names[0], "p", "p by Holm", *names[1:]]]
    for (system, base), (first, *others) in differences.items():
        p = f"{corrected[system, base]:.2g}" if (system, base) in corrected else "primary"
        seeds = str(len(first.each))
        lines.append([f"`{system}`", f"`{base}`", seeds, str(first), f"{first.p:.2g}", p, *map(str, others)])
    return markdown(lines) if differences else "No two systems can be compared yet.\n"


def _scores(plan: Plan) -> str:
    """Return what a first page needs: each system's parameters and scores, and the difference from the base.

    Empty for plans of several shapes or variants of a system, which the recipe does not describe.
    """
    if any("-" in system for system in plan.systems):
        return ""
    chosen, complete = plan.content["primary"], _complete(plan)
    metric = plan.metrics[0]
    lines = [["system", "parameters", "seeds", metric, "difference (95 %)", *plan.metrics[1:]]]
    for system, results in complete.items():
        columns = [[measure(plan, result, name) for result in results.values()] for name in plan.metrics]
        first, *others = (spread(column, 2) for column in columns)
        about = system_of(plan.recipe, system.partition("-")[0]).about
        size = f"{next(iter(results.values()))['parameters'] / 1e6:.2f} M"
        difference = ""
        if system != chosen["base"] and chosen["base"] in complete:
            difference = str(difference_of(plan, Comparison(system, chosen["base"], metric)))
        lines.append([about, size, str(len(results)), first, difference, *others])
    return markdown(lines)


def _parts(plan: Plan) -> str:
    """Return losses and scores of all sets of parts of the open form, and what a part is worth over all of them.

    ``depthwise_lstm-PART_PART`` are systems of this plan; the one of the recipe's name has those with no part and all.
    Empty for a plan of something else, and before all have been trained.
    """
    names = {}
    for name in plan.systems:
        system, _, variant = name.partition("-")
        if system == "depthwise_lstm" and PARTS.issuperset(variant.split("_")):
            names[frozenset(variant.split("_"))] = name
    if not names:
        return ""
    whole = Plan(sweep.PLANS / f"{plan.recipe}.toml", plan.results.parent)
    parts, seeds = sorted(frozenset().union(*names)), plan.content["seeds"]
    found = {chosen: _finals(plan, name) for chosen, name in names.items()}
    found |= {frozenset(): _finals(whole, "depthwise_lstm"), frozenset(parts): _finals(whole, "depthwise_lstm_open")}
    if len(found) < 2 ** len(parts) or any(not {*seeds} <= {*results} for results in found.values()):
        return ""
    metrics = (plan.content["primary"]["metric"], "chrf")
    warm = plan.content["warm_up"] * plan.content["updates"]["final"]

    def measures(result: dict[str, Any]) -> list[float]:
        losses = [dict(result["valid"])[warm], *(result[loss][-1][1] for loss in LOSSES)]
        return [*losses, *(result["scores"][name] for name in metrics)]

    # set of parts -> measures x seeds
    values = {chosen: np.array([measures(results[seed]) for seed in seeds]).T for chosen, results in found.items()}
    lines, digits = [["parts", f"validation loss, update {warm:g}", *LOSSES.values(), *metrics]], (3, 3, 3, 2, 2)
    for chosen in sorted(values, key=lambda chosen: (len(chosen), *sorted(chosen))):
        cells = [spread(list(each), shown) for each, shown in zip(values[chosen], digits, strict=True)]
        lines.append([" + ".join(sorted(chosen)) or "none", *cells])
    for part in parts:
        sides = [np.mean([values[c] for c in values if (part in c) == within], axis=0) for within in (True, False)]
        lines.append([f"with - without {part}", *map(str, map(Difference.of, *sides, digits))])
    return markdown(lines)


def draw(plan: Plan, figure: Figure) -> None:
    """Draw losses minus those of the primary comparison's base over updates, and the score of each seed."""
    metric, base = plan.content["primary"]["metric"], plan.content["primary"]["base"]
    complete = _complete(plan)
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
