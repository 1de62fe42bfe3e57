"""The trainings of the protocol in docs/results.md: which there are, in which order, and what is known of them.

Each system of a recipe tries the same peak rates in short trainings of seed 1, and takes the one with the lowest
validation loss for its trainings of full length, one for each seed. What was measured is a record, one JSON file for
each recipe.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import small_systems

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

#: The recipes of the protocol, and the part of each that depends on the corpus.
SIZES = {
    "multi30k": small_systems.MULTI30K,
    "tatoeba_de_en": small_systems.TATOEBA,
    "mixed_de_en": small_systems.MIXED,
}

#: Their systems that are compared, baselines first, so that a later one can be compared with them.
SYSTEMS = (
    "transformer",
    "transformer_relative",
    "depthwise_lstm",
    "mute_sequential",
    "sdt",
    "deep_blocks",
    "transformer_post_norm",
    "depthwise_lstm_forget1",
    "mute",
    "deep",
    "sdt_no_restart",
    "depthwise_lstm_forget2",
    "depthwise_lstm_less_dropout",
    "transformer_less_dropout",
    *(f"deep_{name}" for name in small_systems.CONNECTIONS),
)

#: Trainings of full length of each.
SEEDS = (1, 2, 3)

#: The part of the updates that a short training has.
SHORT = 4


@dataclass(frozen=True)
class Run:
    """A training of the protocol.

    Attributes:
        recipe, system, seed: what is trained.
        rate: the peak rate, for a short training; None for one of full length, which takes the best rate.
    """

    recipe: str
    system: str
    seed: int
    rate: float | None = None

    @property
    def name(self) -> str:
        """Its folder below ``WORK/systems``, where evaluation finds what has a seed only."""
        if self.rate is not None:
            return f"{self.system}-rate{self.rate:g}"
        return self.system if self.seed == 1 else f"{self.system}-seed{self.seed}"

    def options(self, rate: float) -> tuple[str, ...]:
        """Return what the recipe's command is given besides: the rate and, if it is short, the length."""
        options: tuple[str, ...] = ("--lr", f"{rate:g}")
        if self.rate is None:
            return options
        size = SIZES[self.recipe]
        updates = size.updates // SHORT
        options += ("--max-update", str(updates), "--patience", "-1")
        if small_systems.systems(size)[self.system].stages:
            stages = ",".join(f"{stage.layers}:{stage.updates or ''}u" for stage in small_systems.stages(size, updates))
            options += ("--growth-stages", stages)
        return options


def all_runs(recipes: Sequence[str], systems: Sequence[str], seeds: Sequence[int]) -> Iterator[Run]:
    """Yield the trainings in their order: a seed of all systems of a recipe before the next, rates before the first."""
    for position, seed in enumerate(seeds):
        for recipe in recipes:
            for system in systems:
                if position == 0:
                    yield from (Run(recipe, system, 1, rate) for rate in SIZES[recipe].rates)
                yield Run(recipe, system, seed)


class Record:
    """What was measured of a recipe's trainings.

    Args:
        path: of the JSON file, read if it is there.
        recipe: its name.

    Raises:
        UserError: the file is no record of this recipe under this protocol.
    """

    def __init__(self, path: Path, recipe: str) -> None:
        self.path = path
        size = SIZES[recipe]
        self.rates = size.rates
        protocol = asdict(size) | {
            "rates": list(size.rates),
            "batch_tokens": small_systems.BATCH_TOKENS,
            "warm_up": small_systems.WARM_UP,
        }
        self.content: dict[str, Any] = {"recipe": recipe, "protocol": protocol, "runs": {}}
        if path.exists():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                same = (
                    content["recipe"] == recipe
                    and content["protocol"] == protocol
                    and all(isinstance(run, dict) for run in content["runs"].values())
                )
            except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
                raise UserError(f"{path} is not a record of a sweep; give another folder with --records") from error
            if not same:
                raise UserError(
                    f"{path} is of another protocol, {content['recipe']} with {content['protocol']}, and this one is "
                    f"{recipe} with {protocol}; give another folder with --records"
                )
            self.content = content

    def require_text(self, report: list[str]) -> None:
        """Raise UserError if the trainings so far had another training text, so that nothing can be compared."""
        before = self.content.setdefault("text", report)
        if before != report:
            raise UserError(
                f"{self.path} is of trainings on other text ({'; '.join(before)}), and this one has "
                f"{'; '.join(report)}; give another folder with --records"
            )

    def of(self, run: Run) -> dict[str, Any] | None:
        """Return what is known of a training, None before it has ended."""
        result: dict[str, Any] | None = self.content["runs"].get(run.name)
        return result

    def add(self, run: Run, result: Mapping[str, Any]) -> None:
        """Keep what came of a training, in the file as well."""
        self.content["runs"][run.name] = dict(result)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write((json.dumps(self.content, indent=1, sort_keys=True) + "\n").encode())

    def has_failed(self, system: str) -> bool:
        """Return whether all short trainings of a system have ended, and none of them can be taken."""
        tried = [self.of(Run(self.content["recipe"], system, 1, rate)) for rate in self.rates]
        return all(tried) and self.rate(system) is None

    def forget_failures(self) -> None:
        """Leave out what failed, so that it is trained again; the file changes with the next that ends."""
        self.content["runs"] = {name: run for name, run in self.content["runs"].items() if "failed" not in run}

    def rate(self, system: str) -> float | None:
        """Return the peak rate that a system takes; None while a short training is missing, or if all failed."""
        tried = {rate: self.of(Run(self.content["recipe"], system, 1, rate)) for rate in self.rates}
        losses = {rate: _loss(result) for rate, result in tried.items() if result is not None}
        best = min(losses, key=lambda rate: losses[rate], default=None)
        return best if len(losses) == len(self.rates) and best is not None and losses[best] < math.inf else None


def _loss(result: Mapping[str, Any]) -> float:
    """Return the loss on the validation set at the end of a training; infinite for one that failed."""
    loss = result.get("loss")
    return loss if loss is not None and math.isfinite(loss) else math.inf
