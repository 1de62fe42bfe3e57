"""Fit a paper's batch size to the GPUs at hand: choose ``--max-tokens`` and ``--update-freq`` of fairseq-train.

``--max-tokens`` counts padded tokens of the longer side. The batch sizes of papers that count target tokens instead are
converted with :func:`target_share`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from systems import Stage

from fairseq_compat import UserError

#: The smallest ``--max-tokens`` allowed: fairseq drops training sentences that are longer than a batch.
MIN_TOKENS = 300

#: :func:`target_share` of English-German text, used when there is no training set to measure.
USUAL_SHARE = 0.86

#: At most this many sentences, evenly spaced in the training set, are read to measure the share.
SAMPLE_SIZE = 200_000


class Batch(NamedTuple):
    """Options of fairseq-train.

    Attributes:
        max_tokens: tokens in one batch of one process.
        update_freq: batches per update, counted per process; in elastic training, over all processes.
    """

    max_tokens: int
    update_freq: int


def fit_batch(tokens_per_update: int, processes: int, token_limit: int, *, elastic: bool = False) -> Batch:
    """Return the batch with the fewest batches per update, and tokens rounded up to at least ``tokens_per_update``.

    Args:
        processes: over all nodes; in elastic training, the maximum.
        token_limit: the most tokens that fit on one GPU.
        elastic: count ``update_freq`` over all processes.

    Raises:
        UserError: there are too many processes for so few tokens.
    """
    update_freq = max(1, math.ceil(tokens_per_update / (processes * token_limit)))
    max_tokens = math.ceil(tokens_per_update / (processes * update_freq))
    if max_tokens < MIN_TOKENS:
        max_processes = max(1, tokens_per_update // MIN_TOKENS)
        raise UserError(
            f"an update has {tokens_per_update:,} tokens, and {processes} processes with at most {token_limit:,} each "
            f"would take {max_tokens:,} at a time, less than a long sentence; use at most {max_processes} processes, "
            f"and MAX_TOKENS of at least {MIN_TOKENS}"
        )
    if elastic:
        update_freq *= processes
    return Batch(max_tokens, update_freq)


def growth_stages(
    stages: Sequence[Stage], tokens_per_update: int, processes: int, token_limit: int, *, elastic: bool = False
) -> str:
    """Return ``--growth-stages`` with the batch of each stage: deeper models fit fewer tokens at a time.

    Stages measured in updates all use one batch size, since fairseq changes it only between epochs.
    """
    if any(stage.updates for stage in stages):
        # The last stage has no length, as in "6:100u,12:u": it lasts until training ends.
        return ",".join(f"{stage.layers}:{stage.updates or ''}u" for stage in stages)
    texts = []
    for stage in stages:
        stage_limit = max(1, round(token_limit * stage.share))
        size = fit_batch(tokens_per_update, processes, stage_limit, elastic=elastic)
        length = "" if stage.epochs is None else str(stage.epochs)
        texts.append(f"{stage.layers}:{length}@{size.max_tokens}x{size.update_freq}")
    return ",".join(texts)


def target_share(data: Path, source: str, target: str, max_tokens: int) -> float:
    """Return the mean number of target tokens in a training batch, divided by ``max_tokens``.

    Batches are made as in fairseq: sentences of similar length, and their number a multiple of 8.
    """
    import numpy as np
    from fairseq.data import data_utils
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    # Keep the datasets in a variable: their sizes are memory-mapped, and the files close with the datasets.
    texts = [MMapIndexedDataset(f"{data}/train.{source}-{target}.{language}") for language in (source, target)]
    step = max(1, math.ceil(len(texts[0]) / SAMPLE_SIZE))
    sources, targets = (text.sizes[::step].astype(np.int64) for text in texts)
    # fairseq drops sentences that are too long for a batch.
    fits = np.maximum(sources, targets) <= max_tokens
    sources, targets = sources[fits], targets[fits]
    order = np.lexsort((targets, sources))
    batches = data_utils.batch_by_size(
        order,
        num_tokens_fn=None,
        num_tokens_vec=np.maximum(sources, targets)[order],
        max_tokens=max_tokens,
        required_batch_size_multiple=8,
    )
    # Drop the last, incomplete batch: among the few batches of a sample it would weigh too much.
    full_batches = batches[:-1] or batches
    if not full_batches:
        return USUAL_SHARE
    target_tokens = sum(int(targets[indices].sum()) for indices in full_batches)
    return target_tokens / (len(full_batches) * max_tokens)
