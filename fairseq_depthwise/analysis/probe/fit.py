"""One pass over the data that fits a linear map to every layer of a trained model.

Source: "Multi-Layer Transformers with Depth-Wise LSTMs" (the first version of "Rewiring the Transformer with
Depth-Wise LSTMs"), Section 4. The objective is ``distill`` of the criterion ``linearization_probe``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import FairseqDataset
from fairseq.data.data_utils import numpy_seed
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.analysis.probe.linear_fit import LayerMoments, LinearFit
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

#: Seed of the choice of sentences.
_SEED = 1

#: Name of a layer -> what was seen of it.
Moments = dict[str, LayerMoments]


def choose_batches(loaded: LoadedModel, subset: str, *, max_tokens_used: int, max_tokens: int) -> list[list[int]]:
    """Sentences chosen at random, always the same ones, until there are enough; in batches of like lengths.

    Args:
        loaded: the model and its data.
        subset: part of the data.
        max_tokens_used: target tokens to choose, or the first sentence's if that has more; 0 takes all.
        max_tokens: size of a batch.

    Raises:
        UserError: there is no such part, nothing in it, or nothing that is short enough for the model.
    """
    dataset: Any = loaded.sentences(subset)
    limits = utils.resolve_max_positions(loaded.task.max_positions(), loaded.model.max_positions())
    with numpy_seed(_SEED):  # sentences of one length come in random order
        indices = dataset.ordered_indices()
    indices = loaded.task.filter_indices_by_size(indices, dataset, limits, ignore_invalid_inputs=True)
    if not len(indices):
        raise UserError(
            f"--train-subset {subset} of {loaded.data}: no sentence is short enough for {loaded.path}, which takes "
            f"up to {loaded.model.max_positions()} tokens"
        )
    if max_tokens_used:
        shuffled = np.random.default_rng(_SEED).permutation(np.sort(indices))
        enough = int(np.searchsorted(np.cumsum(dataset.tgt_sizes[shuffled]), max_tokens_used, side="right"))
        indices = indices[np.isin(indices, shuffled[: max(enough, 1)])]
    longest = max(int(dataset.src_sizes[indices].max()), int(dataset.tgt_sizes[indices].max()))
    batches = dataset.batch_by_size(indices, max_tokens=max(max_tokens, longest), required_batch_size_multiple=1)
    return [list(map(int, batch)) for batch in batches]


def collect_moments(
    model: LinearizedTransformer,
    dataset: FairseqDataset,
    batches: Iterable[Sequence[int]],
    *,
    device: torch.device,
    progress: Callable[[int], None] = lambda tokens: None,
) -> Moments:
    """Run the intact model over batches and keep what the maps of its layers follow from.

    Args:
        model: with the layers to look at; it is as it was afterwards.
        dataset: of sentence pairs.
        batches: numbers of sentences.
        device: where the model is.
        progress: called after each batch with its target tokens.
    """
    # GPUs are slow in float64, and the sums are what needs it.
    precision = torch.float64 if device.type == "cpu" else torch.float32
    moments: Moments = {}

    def take(name: str, below: Tensor, above: Tensor) -> None:
        if name not in moments:
            moments[name] = LayerMoments(below.size(1), precision=precision, device=device)
        moments[name].add(below, above)

    for numbers in batches:
        sample: dict[str, Any] = dataset.collater([dataset[number] for number in numbers])
        if device.type == "cuda":
            sample = utils.move_to_cuda(sample, device)
        inputs = sample["net_input"]
        model.observe(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], take)
        progress(int(sample["ntokens"]))
    return moments


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """What several processes have seen, together; the first part is added to."""
    whole = parts[0]
    for part in parts[1:]:
        for name, moments in part.items():
            if name in whole:
                whole[name].merge(moments)
            else:
                whole[name] = moments
    return whole


def fits_of(moments: Moments, widths: Mapping[str, int], name: str) -> dict[tuple[str, str], LinearFit]:
    """The maps: (layer, state) -> map; "pair" and "output" of layers that pass on pairs, the state "" of others.

    Args:
        moments: of every layer.
        widths: d of each side.
        name: of the model, for errors.

    Raises:
        UserError: the model computes something that is not a number.
    """
    fits: dict[tuple[str, str], LinearFit] = {}
    for layer, seen in moments.items():
        width = widths[layer.partition(".")[0]]
        parts = {"": seen} if seen.width == width else {"pair": seen, "output": seen.of_first(width)}
        for state, part in parts.items():
            try:
                fits[layer, state] = part.fit()
            except ValueError as error:
                raise UserError(f"{name}, {layer}: {error}; has its training diverged?") from error
    return fits
