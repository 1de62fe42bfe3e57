"""Tables and a figure of what the trainings of a plan of ``recipes/sweep.py`` have found.

python benchmarks/comparison.py recipes/plans/multi30k.toml --figure docs/figures/protocol_multi30k.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
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
import sweep  # the folder is on the path by the line above

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Curves of a training's losses -> what they are called.
LOSSES = {"valid": "validation loss", "seen": "loss of training sentences"}


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
        return cls(each, float(low), float(high), float(test.pvalue), digits)

    def __str__(self) -> str:
        mean, low, high = (f"{one:+.{self.digits}f}" for one in (fmean(self.each), self.low, self.high))
        return f"{mean} ({low} to {high})"


def tables_of(plan: sweep.Plan) -> dict[str, str]:
    """Return the tables ``grid``, ``final``, ``compared``, ``scores`` and ``parts`` of what has ended, in Markdown."""
    makers = {"grid": _grid, "final": _final, "compared": _compared, "scores": _scores, "parts": _parts}
    return {name: make(plan) for name, make in makers.items()}


def _grid(plan: sweep.Plan) -> str:
    combinations = list(dict.fromkeys(run.values for system in plan.systems for run in plan.grid(system)))
    lines = [["system", *(", ".join(f"{axis} {value:g}" for axis, value in values or ()) for values in combinations)]]
    for system in plan.systems:
        best, cells = plan.best(system), []
        for values in combinations:
            result = plan.result(sweep.Run(system, 1, values))
            loss = "-" if result is None else "failed" if "failed" in result else f"{sweep.loss_of(result):.3f}"
            cells.append(f"**{loss}**" if best and best.values == values and result else loss)
        lines.append([f"`{system}`", *cells])
    ended = [plan.result(run) is not None for run in plan.runs()]
    return markdown(lines) + f"\n{sum(ended)} of {len(ended)} trainings have ended, final ones included.\n"


def _final(plan: sweep.Plan) -> str:
    metric = plan.content["primary"]["metric"]
    lines = [["system", "parameters", *plan.axes, "seeds", *LOSSES.values(), metric, "chrf", "processor minutes"]]
    for system in plan.systems:
        if not (found := list(_finals(plan, system).values())):
            continue
        gpus = max(one["gpus"] for one in found)  # the processor's time beside a GPU is not that without
        minutes = [one["seconds"] / 60 for one in found if one["gpus"] == gpus and not one["from_update"]]  # unstopped
        columns = [[result[loss][-1][1] for result in found] for loss in LOSSES]
        scored = found if len(found) == len(plan.content["seeds"]) else []  # before that they are not looked at
        columns += [[result["scores"][name] for result in scored] for name in (metric, "chrf")]
        cells = [spread(values, digits) for values, digits in zip((*columns, minutes), (3, 3, 2, 2, 0), strict=True)]
        chosen = [f"{value:g}" for value in found[0]["values"].values()]
        failed = sum("failed" in (plan.result(sweep.Run(system, seed)) or {}) for seed in plan.content["seeds"])
        seeds = str(len(found)) + (f", {failed} failed" if failed else "")
        lines.append([f"`{system}`", f"{found[0]['parameters']:,}", *chosen, seeds, *cells])
    return markdown(lines) + _primary(plan) if len(lines) > 1 else "No final training has ended yet.\n"


def _finals(plan: sweep.Plan, system: str) -> dict[int, dict[str, Any]]:
    """Return the results of a system's final trainings by seed."""
    found = {seed: plan.result(sweep.Run(system, seed)) or {"failed": ""} for seed in plan.content["seeds"]}
    return {seed: result for seed, result in found.items() if "failed" not in result}


def _complete(plan: sweep.Plan) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the systems of which all seeds have ended, where these are several."""
    for system in plan.systems:
        if len(found := _finals(plan, system)) == len(plan.content["seeds"]) > 1:
            yield system, list(found.values())


def _primary(plan: sweep.Plan) -> str:
    """Return the plan's primary comparison in words, when all of its trainings have ended."""
    chosen, complete = plan.content["primary"], dict(_complete(plan))
    system, base, metric = complete.get(chosen["system"]), complete.get(chosen["base"]), chosen["metric"]
    if not system or not base:
        return ""
    compared = Difference.of(*([result["scores"][metric] for result in side] for side in (system, base)))
    counts = ([from_text(result["sentences"]) for result in side] for side in (system, base))
    from_, to = bootstrap_interval(TranslationMetric(metric), *counts)
    verdict = "supported" if compared.low > 0 else "not reproduced" if compared.high < 0 else "undecided"
    each = ", ".join(f"{difference:+.2f}" for difference in compared.each)
    return (
        f"\n`{chosen['system']}` against `{chosen['base']}`, {metric}, seed by seed: {each}. Mean "
        f"{fmean(compared.each):+.2f}; 95 % interval over seeds {compared.low:+.2f} to {compared.high:+.2f} (Student), "
        f"over seeds and sentences {from_:+.2f} to {to:+.2f} (bootstrap). By the first: {verdict} at this size.\n"
    )


def _compared(plan: sweep.Plan) -> str:
    """Return all comparisons; p values of all but the primary one are corrected by Holm for their number."""
    chosen = plan.content["primary"]
    names = (chosen["metric"], "chrf", "validation loss")
    numbers = {
        system: np.array([[*(one["scores"][name] for name in names[:2]), one["valid"][-1][1]] for one in results]).T
        for system, results in _complete(plan)
    }
    pairs = [
        (system, base, [*map(Difference.of, numbers[system], numbers[base], (2, 2, 3))])
        for base, system in combinations(numbers, 2)
    ]
    secondary = [place for place, pair in enumerate(pairs) if {*pair[:2]} != {chosen["system"], chosen["base"]}]
    corrected = dict(zip(secondary, holm([pairs[place][2][0].p for place in secondary]), strict=True))
    lines = [["system", "against", names[0], "p", "p by Holm", *names[1:]]]
    for place, (system, base, (first, *others)) in enumerate(pairs):
        p = f"{corrected[place]:.2g}" if place in corrected else "primary"
        lines.append([f"`{system}`", f"`{base}`", str(first), f"{first.p:.2g}", p, *map(str, others)])
    return markdown(lines) if pairs else "No two systems can be compared yet.\n"


def _scores(plan: sweep.Plan) -> str:
    """Return what a first page needs: each system's parameters and scores, and the difference from the base."""
    metric, complete = plan.content["primary"]["metric"], dict(_complete(plan))
    base = complete.get(plan.content["primary"]["base"])
    lines = [["system", "parameters", "seeds", metric, "difference (95 %)", "chrf"]]
    for system, results in complete.items():
        first, second = ([result["scores"][name] for result in results] for name in (metric, "chrf"))
        others = [] if results is base or not base else [result["scores"][metric] for result in base]
        about = sweep.system_of(plan.recipe, system.partition("-")[0]).about
        size = f"{results[0]['parameters'] / 1e6:.2f} M"
        difference = str(Difference.of(first, others)) if others else ""
        lines.append([about, size, str(len(results)), spread(first, 2), difference, spread(second, 2)])
    return markdown(lines)


def _parts(plan: sweep.Plan) -> str:
    """Return losses and scores of all sets of parts of the open form, and what a part is worth over all of them.

    ``depthwise_lstm-PART_PART`` are systems of this plan; the one of the recipe's name has those with no part and all.
    Empty for a plan of something else, and before all have been trained.
    """
    names = {frozenset(name[15:].split("_")): name for name in plan.systems if name.startswith("depthwise_lstm-")}
    if not names:
        return ""
    whole = sweep.Plan(sweep.PLANS / f"{plan.recipe}.toml", plan.results.parent)
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


def draw(plan: sweep.Plan, figure: Figure) -> None:
    """Draw losses minus those of the primary comparison's base over updates, and the score of each seed."""
    metric, base = plan.content["primary"]["metric"], plan.content["primary"]["base"]
    complete: Mapping[str, Any] = dict(_complete(plan))
    *losses, scores = figure.subplots(1, len(LOSSES) + 1)
    for number, (system, results) in enumerate(complete.items() if base in complete else ()):
        style = style_of(number)
        for axes, (curve, title) in zip(losses, LOSSES.items(), strict=True):
            updates = [update for update, _ in results[0][curve]]
            pairs = zip(results, complete[base], strict=True)
            values = np.array([np.subtract(*([loss for _, loss in one[curve]] for one in pair)) for pair in pairs])
            mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
            axes.plot(updates, mean, label=system, markevery=2, markersize=4, **style)
            axes.fill_between(updates, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)
            axes.set(title=f"{title}, minus {base}'s", xlabel="updates", ylim=(-0.25, 0.5))
        found = [result["scores"][metric] for result in results]
        scores.plot([number] * len(found), found, linestyle="none", alpha=0.6, **style)
        scores.plot([number - 0.3, number + 0.3], [fmean(found)] * 2, color=style["color"])
    losses[0].set_ylabel("bits a token")
    losses[0].legend(fontsize="small")
    scores.set(title=f"{metric} of each seed, and mean", xticks=[], xlim=(-0.6, len(complete) - 0.4))


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file of recipes/plans")
    parser.add_argument("--results", type=Path, default=sweep.RESULTS, help="folder (default: docs/records/protocol)")
    parser.add_argument("--figure", metavar="FILE", help="a picture that is written, too, over an earlier one")
    return parser.parse_args(given)


def run(options: argparse.Namespace, _: Sequence[str]) -> None:
    """Print the tables, and draw the figure."""
    plan = sweep.Plan(options.plan, options.results)
    print("\n".join(tables_of(plan).values()))
    if options.figure:
        write_figure(options.figure, (13, 4), lambda figure: draw(plan, figure))


if __name__ == "__main__":
    sys.exit(run_program("comparison", parse_options, run, None))
