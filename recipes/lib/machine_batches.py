"""A paper's batch on any number of GPUs: how many tokens each takes at a time, and how many times before an update.

``--max-tokens`` counts padded tokens of the longer side; where a paper counts target tokens, their share is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from systems import Stage

from fairseq_compat import UserError

#: Fewer tokens for a GPU would leave long sentences out.
FEWEST_TOKENS = 300

#: Target tokens for each token of ``--max-tokens`` where there are no data to measure it with: of English-German text.
USUAL_SHARE = 0.86

#: Sentences that it is measured with, evenly spread.
SAMPLE = 200_000


class Batch(NamedTuple):
    """Options of fairseq-train.

    Attributes:
        max_tokens: of each process, at a time.
        update_freq: how many of those make an update; of each process, or of all.
    """

    max_tokens: int
    update_freq: int


def batch(tokens: int, processes: int, most: int, *, shared: bool = False) -> Batch:
    """Return the batch whose tokens, processes over all nodes and repetitions multiply to ``tokens``, rounded up.

    ``most`` tokens fit a process at a time. With ``shared``, in an elastic training, ``processes`` are the most that
    there may be, and repetitions are counted over all of them.

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
    return Batch(max_tokens, update_freq * (processes if shared else 1))


def growth_stages(stages: Sequence[Stage], tokens: int, processes: int, most: int, *, shared: bool = False) -> str:
    """Return ``--growth-stages`` with the batch of each stage: deeper models fit fewer tokens at a time.

    Stages in updates have no batches of their own; fairseq begins another batch size with an epoch only.
    """
    if any(stage.updates for stage in stages):
        return ",".join(f"{stage.layers}:{stage.updates or ''}u" for stage in stages)
    texts = []
    for stage in stages:
        size = batch(tokens, processes, max(1, round(most * stage.share)), shared=shared)
        length = "" if stage.epochs is None else str(stage.epochs)
        texts.append(f"{stage.layers}:{length}@{size.max_tokens}x{size.update_freq}")
    return ",".join(texts)


def target_share(data: Path, source: str, target: str, max_tokens: int) -> float:
    """Return the target tokens of the mean batch of the training set, by ``max_tokens``.

    Batches are those of fairseq: sentences of like length, a multiple of 8 of them.
    """
    import numpy as np
    from fairseq.data import data_utils
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    # Their sizes are views of files that are closed with them.
    texts = [MMapIndexedDataset(f"{data}/train.{source}-{target}.{language}") for language in (source, target)]
    step = max(1, math.ceil(len(texts[0]) / SAMPLE))
    sources, targets = (text.sizes[::step].astype(np.int64) for text in texts)
    # Sentences too long for a batch are left out in training.
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
    # The last batch is smaller than the others; of a sample it would count for more than it does.
    whole = batches[:-1] or batches
    if not whole:
        return USUAL_SHARE
    tokens = sum(int(targets[batch].sum()) for batch in whole)
    return tokens / (len(whole) * max_tokens)
