"""Schedules of growth: how deep the encoder is for how long, and how much time that saves.

Depths are in blocks and lengths in proportions, so that one schedule fits models of every size. Nothing here trains.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        published: time saved according to the paper, whose micro-batches are larger at small depth; None if it has
            no such schedule.
    """

    meaning: str
    stages: tuple[tuple[int, float], ...]
    restarts: tuple[float, ...] = ()
    published: float | None = None

    @property
    def grows(self) -> bool:
        return len(self.stages) > 1

    def lengths(self, updates: int, block_size: int) -> dict[int, int]:
        """Layers -> updates; all stages together take ``updates``.

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
        """The restarts, if all stages together take ``updates``."""
        return [self._after(epochs, updates) for epochs in self.restarts]

    def _after(self, epochs: float, updates: int) -> int:
        return round(updates * epochs / sum(length for _, length in self.stages))


#: The schedules compared, by name. What all are compared with trains the deepest model from the start. Two others do
#: not grow either: they show what the restarts of the learning rate and the smaller depth do alone.
DEEP, PAPER = "deep", "paper"
_BORDERS = (2, 4, 6, 8, 10, 13, 16)
SCHEDULES = {
    DEEP: Schedule("full depth from the start", ((8, 21),)),
    PAPER: Schedule("the paper's", ((1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 3), (7, 3), (8, 5)), published=0.3998),
    "short": Schedule(
        "the paper's, each stage half as long", ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1.5), (7, 1.5), (8, 13))
    ),
    "doubling": Schedule("doubling every 4 epochs, the paper's too", ((1, 4), (2, 4), (4, 4), (8, 9)), published=0.518),
    "late": Schedule("doubling, full depth for the last seventh", ((1, 6), (2, 6), (4, 6), (8, 3))),
    "restarted": Schedule("no growth: full depth, restarted as in the paper's", ((8, 21),), restarts=_BORDERS),
    "shallow": Schedule("no growth: a quarter of the depth, restarted likewise", ((2, 21),), restarts=_BORDERS),
}


def stages_text(lengths: Mapping[int, int]) -> str:
    """The value of ``--growth-stages``."""
    return ",".join(f"{layers}:{updates}u" for layers, updates in lengths.items())


def time_saved(lengths: Mapping[int, float], seconds: Mapping[int, float]) -> float:
    """The share of time saved beside as many updates at the full depth: 1 - sum_k n_k t_k / (N t_deep).

    Args:
        lengths: layers -> updates n_k; the growth steps themselves are taken to cost nothing.
        seconds: layers -> time of an update t_k, for the full depth too.
    """
    taken = sum(updates * seconds[layers] for layers, updates in lengths.items())
    return 1 - taken / (sum(lengths.values()) * seconds[max(seconds)])


def share_of_time(lengths: Mapping[int, int], staged: Sequence[float], deep: Sequence[float]) -> float:
    """The staged training's share of the deep one's time, as if the machine had kept its speed.

    Args:
        lengths: layers -> updates, in the order of training.
        staged: seconds of each update, growth included.
        deep: seconds of each update of the deep model, done just before or after it.
    """
    shares, begin = 0.0, 0
    for updates in lengths.values():
        stage = slice(begin, begin + updates)
        shares += updates * median_ratio(staged[stage], deep[stage])
        begin += updates
    return shares / begin


def median_ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios of two works that were done by turns."""
    return statistics.median(one / other for one, other in zip(seconds, others, strict=True))


def limit_of_saving(lengths: Mapping[int, float], deepest: int) -> float:
    """The share saved if an update took time in the encoder's layers only."""
    return time_saved(lengths, {deepest: deepest, **{layers: layers for layers in lengths}})


def encoder_share(seconds: Mapping[int, float]) -> float:
    """The share of the deepest model's step that its encoder's layers take, from steps at several depths.

    They take what the step grows by from the shallowest to the deepest, for all layers.
    """
    shallow, deep = min(seconds), max(seconds)
    return (seconds[deep] - seconds[shallow]) / (deep - shallow) * deep / seconds[deep]


def shares_of_products(encoder_layers: int, decoder_layers: int, width: int, dictionary: int) -> tuple[float, ...]:
    """The shares of encoder, decoder and output projection in the matrix products for a token; hidden nets 4 wide."""
    parts = (12 * encoder_layers * width**2, 16 * decoder_layers * width**2, width * dictionary)
    return tuple(part / sum(parts) for part in parts)
