"""A registered plan: its trainings, the choices of its grids, and the commands that train them.

A plan is a TOML file of ``recipes/plans``. Its results are JSON files, one for each training, in a folder of the plan's
name; each has the digest of the plan that it belongs to.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe_step import languages_of
from toml_files import between, naming, read_table, read_toml

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.scores import METRICS
from recipes import all_recipes, system_of

#: Curves of a training's losses -> what they are called.
LOSSES = {"valid": "validation loss", "seen": "loss of training sentences"}

#: What comparisons of the recipe hops call the number of steps that a model can follow.
HOPS = "hops"

#: Options that the command of every training sets itself, after all others.
SET_BY_COMMAND = (
    *("max-update", "seed", "total-num-update", "warmup-updates"),
    *("source-lang", "target-lang", "save-dir", "log-file"),
)


@dataclass(frozen=True)
class Run:
    """A training of a plan: ``values`` are axes of the grid with values, None for a final training (the best).

    ``system`` is one of the recipe, or a variant by other options, which has a name of its own after a dash.
    """

    system: str
    seed: int
    values: tuple[tuple[str, float], ...] | None = None

    @property
    def name(self) -> str:
        if self.values is None:
            return f"{self.system}-seed{self.seed}"
        return "-".join([self.system, *(f"{axis}{value:g}" for axis, value in self.values)])


@dataclass(frozen=True)
class Difference:
    """A system minus its base."""

    system: str
    base: str


@dataclass(frozen=True)
class Comparison(Difference):
    """A comparison of a plan.

    Attributes:
        metric: of translations, or one of losses, or ``HOPS``.
        margin: by which the system may be worse.
        minus: a difference that is subtracted from this one.
    """

    metric: str
    margin: float = field(default=0.0, metadata=between(0))
    minus: Difference | None = None


@dataclass(frozen=True)
class Updates:
    """Updates of a training of the grid, and of a final one."""

    grid: int = field(metadata=between(1))
    final: int = field(metadata=between(1))


@dataclass(frozen=True)
class PlanTable:
    """What a plan's file may have; ``stop``, ``rules`` and ``targets`` are for readers.

    Attributes:
        primary, secondary: comparisons.
        tests: names of the recipe's test sets.
        seeds, seeds_of: of final trainings: of all systems, or of a system of this name.
        beam, lenpen: of translations.
        warm_up: share of a training's updates.
        options: of all trainings.
        systems: name -> options that are added to those of the recipe's system; ``{quarter}`` and ``{seven_tenths}``
            are shares of the updates, and other braces are written twice.
        grid, beyond: axis -> values, and those that are tried beyond its edges.
        metrics: that translations are scored with, the one of the test sets first.
        pairs: systems and bases that are compared; without it all of them.
        tuned_as: system -> the one whose grid chooses for it.
    """

    recipe: str
    primary: Comparison
    tests: list[str]
    updates: Updates
    options: str
    systems: dict[str, str]
    grid: dict[str, list[float]]
    beyond: dict[str, list[float]]
    seeds: list[int] = field(metadata=between(0))
    beam: int = field(metadata=between(1))
    lenpen: float = field(metadata=between(-100, 100))
    warm_up: float = field(metadata=between(0, 1))
    metrics: list[str] = field(default_factory=lambda: ["sacrebleu", "chrf"])
    secondary: list[Comparison] = field(default_factory=list)
    pairs: list[list[str]] = field(default_factory=list)
    seeds_of: dict[str, list[int]] = field(default_factory=dict, metadata=between(0))
    tuned_as: dict[str, str] = field(default_factory=dict)
    stop: str = ""
    rules: list[str] = field(default_factory=list)
    targets: str = ""


class Plan:
    """A plan, from its TOML file, and the results that it has so far in the folder of all plans' results.

    Attributes:
        content: of the file.
        table: the content with its types and defaults, of which the next ones are parts.
        digest: of what the file says, without its comments and layout.
    """

    def __init__(self, path: Path, results: Path) -> None:
        self.content = read_toml(path)
        self.table = read_table(PlanTable, self.content, str(path))
        self.recipe = self.table.recipe
        self.systems = self.table.systems
        self.axes = self.table.grid
        self.metrics = self.table.metrics
        self.results = results / path.stem
        self.digest = hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]
        self._require_sense(str(path))

    def _require_sense(self, path: str) -> None:
        """Raise UserError for mistakes that would be noticed only after the trainings, or never."""
        if self.recipe not in all_recipes():
            raise UserError(f"{path}: there is no recipe {self.recipe!r}; the recipes are {', '.join(all_recipes())}")
        for system in self.systems:
            system_of(self.recipe, system.partition("-")[0])
        table = self.table
        # 1. Every system that is named must be one of the plan's.
        comparisons = [table.primary, *table.secondary]
        named = {*table.seeds_of}
        for pair in [*table.tuned_as.items(), *table.pairs]:
            named |= {*pair}
        for comparison in comparisons:
            for difference in (comparison, comparison.minus or comparison):
                named |= {difference.system, difference.base}
        for system in sorted(named - self.systems.keys()):
            raise UserError(f"{path} names {system}, which is none of its systems: {', '.join(self.systems)}")
        # 2. A system is tuned by its own grid, or by that of a system that has one.
        for system in self.systems:
            if self.tuned_as(self.tuned_as(system)) != self.tuned_as(system):
                raise UserError(
                    f"{path}: tuned_as gives {system} the rate of {self.tuned_as(system)}, which has no grid"
                )
            if len({*self.seeds(system)}) < len(self.seeds(system)):
                raise UserError(f"{path} gives {system} a seed twice: {self.seeds(system)}")
        # 3. Metrics must be known.
        for metric in self.metrics:
            if metric not in METRICS or METRICS[metric].lower_is_better:
                known = ", ".join(name for name, spec in METRICS.items() if not spec.lower_is_better)
                raise UserError(f"{path}: there is no metric {metric!r} for plans; the metrics are {known}")
        # A comparison of a misspelled measure would fail after the last training.
        measures = (*self.metrics, *LOSSES.values(), HOPS)
        for comparison in comparisons:
            if comparison.metric not in measures:
                raise UserError(f"{path} compares {comparison.metric!r}, which is none of {', '.join(measures)}")
        # 4. What has no effect, or a double one.
        for test in table.tests:
            if table.tests.count(test) > 1:
                raise UserError(f"{path} has the test set {test} twice, which would count double; name it once")
        for axis in table.beyond:
            if axis not in self.axes:
                raise UserError(f"{path} has beyond.{axis}, which is no axis of grid: {', '.join(self.axes)}")
        for axis in self.axes:
            _require_settable([f"--{axis}"], f"{path}, grid")
        # 5. Options must be such as a shell reads, before the first training.
        with naming(f"{path}, options"):
            _require_settable(shlex.split(table.options), f"{path}, options")
        for system in self.systems:
            _require_settable(self._options(system, 1000, f"{path}, systems.{system}"), f"{path}, systems.{system}")

    def _options(self, system: str, updates: int, where: str) -> list[str]:
        """Return the options that a plan adds to a system; those that name a share of the updates have its number."""
        text = self.systems[system]
        try:
            return shlex.split(text.format(quarter=updates // 4, seven_tenths=updates * 7 // 10))
        except (ValueError, LookupError, AttributeError) as error:
            raise UserError(
                f"{where} has {text!r}, which cannot be read ({error}): {{quarter}} and {{seven_tenths}} are shares of "
                "the updates, other braces are written twice, as in '{{\"beam\": 4}}', and quotes come in pairs"
            ) from error

    def seeds(self, system: str) -> list[int]:
        """Return the seeds of a system's final trainings: its own, or those of all systems."""
        return self.table.seeds_of.get(system, self.table.seeds)

    def tuned_as(self, system: str) -> str:
        """Return the system whose grid chooses for this one: itself, or the plan's choice, such as another depth."""
        return self.table.tuned_as.get(system, system)

    def grid(self, system: str) -> list[Run]:
        """Return the trainings of a system's grid: all combinations, and those beyond its edges so far."""
        runs = []
        for values in itertools.product(*self.axes.values()):
            runs.append(Run(system, 1, tuple(zip(self.axes, values, strict=True))))
        # The grid grows around its best until that has all its neighbors, or they are beyond what the plan allows.
        while True:
            best = self._lowest(runs)
            untried = [run for run in self._around(best) if run not in runs] if best else []
            if not untried:
                return runs
            runs += untried

    def _around(self, run: Run) -> Iterator[Run]:
        """Yield the combinations with the next lower or higher value of one axis, those beyond the grid included."""
        for axis, value in run.values or ():
            steps = sorted({*self.axes[axis], *self.table.beyond.get(axis, [])})
            place = steps.index(value)
            # Includes the value itself; ``grid`` drops combinations that it has already.
            for step in steps[max(place - 1, 0) : place + 2]:
                values = dict(run.values or ()) | {axis: step}
                yield Run(run.system, run.seed, tuple(values.items()))

    def _lowest(self, runs: Sequence[Run]) -> Run | None:
        """Return the training with the lowest validation loss; None before all have ended, or if all failed."""
        # Of one combination, which needs no training of the grid.
        if len(runs) == 1:
            return runs[0]
        losses = []
        for run in runs:
            result = self.result(run)
            if result is None:
                return None
            losses.append(loss_of(result))
        lowest = min(losses)
        return runs[losses.index(lowest)] if lowest < math.inf else None

    def runs(self) -> Iterator[Run]:
        """Yield all trainings: the grids, a combination of all systems before the next, then the seeds."""
        grids = [self.grid(system) for system in self.systems if self.tuned_as(system) == system]
        # A grid of one combination is not trained: there is nothing to choose.
        # Combination by combination, so that a plan stopped early has treated all systems alike.
        for combination in itertools.zip_longest(*(grid for grid in grids if len(grid) > 1)):
            for run in combination:
                if run is not None:
                    yield run
        seeds: set[int] = set()
        seeds.update(*map(self.seeds, self.systems))
        for seed in sorted(seeds):
            for system in self.systems:
                if seed in self.seeds(system):
                    yield Run(system, seed)

    def result(self, run: Run) -> dict[str, Any] | None:
        """Return the result of a training, None before it has ended; raise UserError if it is of another plan."""
        # A training that has not ended has no file.
        path = self.results / f"{run.name}.json"
        if not path.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            loss_of(result)
        except (ValueError, TypeError, LookupError) as error:
            raise UserError(
                f"{path} is not a complete result of a training; take it away, and the training is made again"
            ) from error
        if result.get("plan") != self.digest:
            raise UserError(
                f"{path} is of the plan {result.get('plan')}, and this one is {self.digest}: they cannot be compared; "
                "give another folder with --results"
            )
        return result

    def best(self, system: str) -> Run | None:
        """Return the combination with the lowest validation loss; None before the grid is complete."""
        return self._lowest(self.grid(self.tuned_as(system)))

    def command(self, run: Run, values: Mapping[str, float], work: Path, folder: Path, on_gpu: bool) -> list[str]:
        """Return the command that trains, or resumes; those of all systems differ in the model only."""
        recipe = all_recipes()[self.recipe]
        system = system_of(self.recipe, run.system.partition("-")[0])
        # Trainings of the grid are shorter.
        updates = self.table.updates.grid if run.values else self.table.updates.final
        options = self._options(run.system, updates, run.name)
        source, target = languages_of(work / "data-bin")
        command = [sys.executable, "-m", "fairseq_depthwise", "train", f"{work}/protocol-bin", "--arch", system.arch]
        command += [*system.options, *options, *shlex.split(self.table.options)]
        for axis, value in values.items():
            command += [f"--{axis}", f"{value:g}"]
        command += [f"--max-update={updates}", f"--seed={run.seed}"]
        # This scheduler has to know its end, others refuse the option.
        if "polynomial_decay" in self.table.options:
            command += [f"--total-num-update={updates}"]
        command += [f"--warmup-updates={round(self.table.warm_up * updates)}"]
        command += [f"--source-lang={source}", f"--target-lang={target}", *recipe.text_options(work / "data-bin")]
        command += ["--save-dir", f"{folder}/checkpoints", "--log-file", f"{folder}/train.log"]
        return command if on_gpu else [*command, "--cpu"]


def _require_settable(words: Sequence[str], where: str) -> None:
    """Raise UserError for an option whose value would be that of the command all the same."""
    for word in words:
        if word.startswith("--") and word[2:].partition("=")[0] in SET_BY_COMMAND:
            raise UserError(f"{where} has {word}, which has no effect, since the command sets it itself; leave it out")


def loss_of(result: Mapping[str, Any]) -> float:
    """Return the validation loss at the end; infinite for a training that ended with an error."""
    # A failed training counts as worse than any other, so that the grid goes on without it.
    loss = math.inf if "failed" in result else float(result["valid"][-1][1])
    return loss if math.isfinite(loss) else math.inf
