"""A paper's batch on any number of GPUs: how many tokens each takes at a time, and how many times before an update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from systems import Stage

from fairseq_compat import UserError

#: Fewer tokens for a GPU would leave long sentences out.
FEWEST_TOKENS = 300


class Batch(NamedTuple):
    """Options of fairseq-train.

    Attributes:
        max_tokens: of each process, at a time.
        update_freq: how many of those make an update.
    """

    max_tokens: int
    update_freq: int


def batch(tokens: int, processes: int, most: int) -> Batch:
    """The batch whose tokens, processes and repetitions multiply to ``tokens``, rounded up to whole ones.

    Args:
        tokens: of an update.
        processes: over all nodes.
        most: tokens that fit a process at a time.

    Raises:
        UserError: there are too many processes for so few tokens.
    """
    update_freq = max(1, math.ceil(tokens / (processes * most)))
    max_tokens = math.ceil(tokens / (processes * update_freq))
    if max_tokens < FEWEST_TOKENS:
        most_processes = max(1, tokens // FEWEST_TOKENS)
        raise UserError(
            f"an update has {tokens:,} tokens, and {processes} processes with at most {most:,} each would take "
            f"{max_tokens:,} at a time, less than a long sentence; use at most {most_processes} processes, and "
            f"MAX_TOKENS of at least {FEWEST_TOKENS}"
        )
    return Batch(max_tokens, update_freq)


def growth_stages(stages: Sequence[Stage], tokens: int, processes: int, most: int) -> str:
    """``--growth-stages`` with the batch of each stage: deeper models fit fewer tokens at a time.

    Stages in updates have no batches of their own; fairseq begins another batch size with an epoch only.
    """
    if any(stage.updates for stage in stages):
        return ",".join(f"{stage.layers}:{stage.updates or ''}u" for stage in stages)
    texts = []
    for stage in stages:
        size = batch(tokens, processes, max(1, round(most * stage.share)))
        length = "" if stage.epochs is None else str(stage.epochs)
        texts.append(f"{stage.layers}:{length}@{size.max_tokens}x{size.update_freq}")
    return ",".join(texts)
