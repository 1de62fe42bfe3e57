"""Schedules of growth: how deep the encoder is for how long, and how much time that saves.

Depths are in blocks and lengths in proportions, so that one schedule fits models of every size. Nothing here trains.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turns import ratios

from fairseq_compat import UserError

#: Blocks of the deepest encoder: 48 layers in blocks of 6 in the paper.
BLOCKS = 8


@dataclass(frozen=True)
class Schedule:
    """One way to reach the full depth, or not to.

    Attributes:
        meaning: in words.
        stages: blocks and length of each stage; the lengths count the paper's 21 epochs.
        restarts: after which epochs the learning rate starts again without growth; growth restarts it by itself.
    """

    meaning: str
    stages: tuple[tuple[int, float], ...]
    restarts: tuple[float, ...] = ()

    @property
    def grows(self) -> bool:
        """Return whether there is more than one depth."""
        return len(self.stages) > 1

    def lengths(self, updates: int, block_size: int) -> dict[int, int]:
        """Return layers -> updates; all stages together take ``updates``.

        Raises:
            UserError: so few that a stage would have none.
        """
        result, done, end = {}, 0.0, 0
        for blocks, length in self.stages:
            done += length
            begin, end = end, self._after(done, updates)
            if end == begin:
                raise UserError(f"{updates} updates are too few for a schedule of {len(self.stages)} stages")
            result[blocks * block_size] = end - begin
        return result

    def restart_updates(self, updates: int) -> list[int]:
        """Return the restarts, if all stages together take ``updates``."""
        return [self._after(epochs, updates) for epochs in self.restarts]

    def _after(self, epochs: float, updates: int) -> int:
        return round(updates * epochs / sum(length for _, length in self.stages))


#: The schedules compared, by name. What all are compared with trains the deepest model from the start. Two others do
#: not grow either: they show what the restarts of the learning rate and the smaller depth do alone.
DEEP, PAPER = "deep", "paper"
_BOUNDARIES = (2, 4, 6, 8, 10, 13, 16)
SCHEDULES = {
    DEEP: Schedule("full depth from the start", ((8, 21),)),
    PAPER: Schedule("the paper's", ((1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 3), (7, 3), (8, 5))),
    "short": Schedule(
        "the paper's, each stage half as long", ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1.5), (7, 1.5), (8, 13))
    ),
    "doubling": Schedule("doubling every 4 epochs, the paper's too", ((1, 4), (2, 4), (4, 4), (8, 9))),
    "late": Schedule("doubling, full depth for the last seventh", ((1, 6), (2, 6), (4, 6), (8, 3))),
    "restarted": Schedule("no growth: full depth, restarted as in the paper's", ((8, 21),), restarts=_BOUNDARIES),
    "shallow": Schedule("no growth: a quarter of the depth, restarted likewise", ((2, 21),), restarts=_BOUNDARIES),
}


def stages_text(lengths: Mapping[int, int]) -> str:
    """Return the value of ``--growth-stages``."""
    return ",".join(f"{layers}:{updates}u" for layers, updates in lengths.items())


def time_saved(lengths: Mapping[int, float], seconds: Mapping[int, float]) -> float:
    """Return the share of time saved compared with as many updates at full depth: 1 - sum_k n_k t_k / (N t_deep).

    Args:
        lengths: layers -> updates n_k; the growth steps themselves are taken to cost nothing.
        seconds: layers -> time of an update t_k, for the full depth too.
    """
    taken = sum(updates * seconds[layers] for layers, updates in lengths.items())
    return 1 - taken / (sum(lengths.values()) * seconds[max(seconds)])


def share_of_time(lengths: Mapping[int, int], staged: Sequence[float], deep: Sequence[float]) -> float:
    """Return the staged training's share of the deep one's time, as if the machine had kept its speed.

    Args:
        lengths: layers -> updates, in the order of training.
        staged: seconds of each update, growth included.
        deep: seconds of each update of the deep model, done just before or after it.
    """
    shares, begin = 0.0, 0
    for updates in lengths.values():
        stage = slice(begin, begin + updates)
        shares += updates * statistics.median(ratios(staged[stage], deep[stage]))
        begin += updates
    return shares / begin


def limit_of_saving(lengths: Mapping[int, float], deepest: int) -> float:
    """Return the share saved if an update took time in the encoder's layers only."""
    return time_saved(lengths, {deepest: deepest, **{layers: layers for layers in lengths}})


def seconds_at(update: int, lengths: Mapping[int, int], seconds: Mapping[int, float]) -> float:
    """Return the time of the first ``update`` updates of a schedule, growth itself left out."""
    result = 0.0
    for layers, length in lengths.items():
        result += min(update, length) * seconds[layers]
        update -= min(update, length)
    return result


def time_to_loss(curve: Sequence[tuple[float, float]], loss: float) -> float | None:
    """Return the seconds until the validation loss is first as low, on straight lines between validations.

    None where it never is.

    Args:
        curve: seconds of training and loss of each validation.
    """
    for (seconds_before, before), (seconds, after) in zip([(0.0, math.inf), *curve], curve, strict=False):
        if after <= loss:
            if after == loss or before == math.inf:
                return seconds
            return seconds_before + (before - loss) / (before - after) * (seconds - seconds_before)
    return None
