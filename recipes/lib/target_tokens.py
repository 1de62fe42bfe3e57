"""How many tokens of target sentences a batch has, where a paper counts those: ``--max-tokens`` counts padded ones."""

from __future__ import annotations

from pathlib import Path

#: Target tokens for each token of ``--max-tokens`` where there are no data to measure it with: of English-German text.
USUAL_SHARE = 0.86

#: Sentences that it is measured with, evenly spread.
SAMPLE = 200_000


def target_share(data: Path, source: str, target: str, max_tokens: int) -> float:
    """Return the target tokens of the mean batch of the training set, by ``max_tokens``.

    Batches are those of fairseq: sentences of like length, a multiple of 8 of them.
    """
    import numpy as np
    from fairseq.data import data_utils
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    # Their sizes are views of files that are closed with them.
    texts = [MMapIndexedDataset(f"{data}/train.{source}-{target}.{language}") for language in (source, target)]
    step = max(1, -(-len(texts[0]) // SAMPLE))
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
    # The last batch is what is left over; of a sample it would count for more than it does.
    whole = batches[:-1] or batches
    return float(sum(targets[batch].sum() for batch in whole) / (len(whole) * max_tokens)) if whole else USUAL_SHARE
