"""The stages of a growing training run: how deep the model is, and for how long.

``6:2,12:2,18:`` trains 6 layers for two epochs, then 12 for two, then 18 until training ends. ``6:5000u`` counts in
updates, and ``6:2@4096x2`` also sets the stage's ``--max-tokens`` and ``--update-freq``. The stage follows from the
number of epochs or updates alone, so nothing about stages has to be saved for a resumed run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_compat import UserError
from fairseq_depthwise.growth.layer_sources import layer_sources

_NUMBER = r"[1-9]\d{0,8}"
_STAGE = re.compile(
    rf"(?P<layers>{_NUMBER}):(?P<length>{_NUMBER})?(?P<unit>u?)(@(?P<max_tokens>{_NUMBER})x(?P<update_freq>{_NUMBER}))?"
)


@dataclass(frozen=True)
class Stage:
    """A depth, its epochs or updates (None: until training ends), and batch sizes if the stage sets them."""

    layers: int
    length: int | None
    max_tokens: int | None = None
    update_freq: int | None = None


@dataclass(frozen=True)
class GrowthPlan:
    """All stages of a run, from shallow to deep; ``text`` is ``--growth-stages`` as given."""

    text: str
    stages: tuple[Stage, ...]
    in_updates: bool

    @property
    def depths(self) -> tuple[int, ...]:
        """The depth of each stage."""
        return tuple(stage.layers for stage in self.stages)

    @property
    def length(self) -> int | None:
        """Epochs or updates of all stages together; None if the last one is open."""
        if self.stages[-1].length is None:
            return None
        return sum(stage.length or 0 for stage in self.stages)

    def stage_of(self, number: int) -> int:
        """Return the stage of epoch or update ``number``, counted from 1; the last stage goes on."""
        end = 0
        for index, stage in enumerate(self.stages[:-1]):
            end += stage.length or 0
            if number <= end:
                return index
        return len(self.stages) - 1

    def stage_with(self, layers: int) -> int | None:
        """Return the stage with that depth, or None."""
        return self.depths.index(layers) if layers in self.depths else None

    def describe(self, index: int) -> str:
        """Describe a stage: "stage 2 of 3: 12 layers for 2 epochs, max-tokens 4096 x update-freq 2"."""
        stage = self.stages[index]
        unit = "update" if self.in_updates else "epoch"
        plural = "" if stage.length == 1 else "s"
        until = "until training ends" if stage.length is None else f"for {stage.length} {unit}{plural}"
        batches = f", max-tokens {stage.max_tokens} x update-freq {stage.update_freq}" if stage.max_tokens else ""
        return f"stage {index + 1} of {len(self.stages)}: {stage.layers} layers {until}{batches}"

    def update_freqs(self, otherwise: Sequence[int]) -> list[int] | None:
        """Return ``--update-freq`` for each epoch up to the first of the last stage, or None if no stage sets it.

        ``otherwise``: the values for epochs whose stage does not set it; the last one is for all later epochs.
        """
        if all(stage.update_freq is None for stage in self.stages):
            return None
        epochs = sum(stage.length or 0 for stage in self.stages[:-1]) + 1
        frequencies = []
        # fairseq uses the last entry for all later epochs.
        for epoch in range(1, max(epochs, len(otherwise)) + 1):
            default = otherwise[min(epoch, len(otherwise)) - 1]
            frequencies.append(self.stages[self.stage_of(epoch)].update_freq or default)
        return frequencies


def parse_stages(text: str, *, strategy: str, block_size: int = 0) -> GrowthPlan:
    """Return the plan that ``--growth-stages`` describes, each of whose steps the strategy must be able to take."""
    stages: list[Stage] = []
    units = set()
    for part in map(str.strip, text.split(",")):
        if stages and stages[-1].length is None:
            raise _refusal(text, f"{part!r} would never begin, as the stage before it has no end; give that a length")
        match = _STAGE.fullmatch(part)
        if match is None:
            raise _refusal(text, f"{part!r} is not a stage, such as 6:2, 6:5000u or 6:2@4096x2, all numbers above 0")
        numbers = {name: int(text) for name, text in match.groupdict().items() if text and name != "unit"}
        stage = Stage(numbers["layers"], numbers.get("length"), numbers.get("max_tokens"), numbers.get("update_freq"))
        # A last stage without a length has no unit either.
        if stage.length is not None or match["unit"]:
            units.add(match["unit"])
        stages.append(stage)
    if len(units) > 1:
        raise _refusal(text, "some stages count epochs and some updates; give all lengths in one of them")
    in_updates = "u" in units
    if in_updates and any(stage.max_tokens for stage in stages):
        raise _refusal(text, "a stage in updates may begin within an epoch, whose batches are made; give epochs")
    plan = GrowthPlan(text, tuple(stages), in_updates)
    if block_size and plan.depths[0] % block_size:
        raise _refusal(text, f"{plan.depths[0]} layers are no blocks of {block_size}; give a multiple of {block_size}")
    for shallow, deep in itertools.pairwise(plan.depths):
        try:
            layer_sources(shallow, deep, strategy, block_size)
        except UserError as error:
            raise _refusal(text, str(error)) from None
    return plan


def _refusal(text: str, reason: str) -> UserError:
    return UserError(f"--growth-stages {text}: {reason}")
