"""One pass over the data that fits a linear layer to every layer of a trained model.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4. The objective is ``distill`` of the criterion ``linearization_probe``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

#: Name of a layer -> moments of its inputs and outputs.
ModelMoments = dict[str, LayerMoments]


def choose_batches(loaded: LoadedModel, subset: str, *, max_tokens_used: int, max_tokens: int) -> list[list[int]]:
    """Choose sentences at random, always the same ones, up to a number of tokens; return batches of similar lengths.

    Args:
        loaded: the model and its data.
        subset: part of the data.
        max_tokens_used: maximum number of target tokens, exceeded only by a first sentence with more; 0 for all.
        max_tokens: size of a batch.

    Raises:
        UserError: there is no such part, or nothing in it that is short enough for the model.
    """
    dataset: Any = loaded.sentences(subset)
    limits = utils.resolve_max_positions(loaded.task.max_positions(), loaded.model.max_positions())
    with numpy_seed(_SEED):  # sentences of one length come in random order
        indices = dataset.ordered_indices()
    indices = loaded.task.filter_indices_by_size(indices, dataset, limits, ignore_invalid_inputs=True)
    if max_tokens_used:
        shuffled = np.random.default_rng(_SEED).permutation(np.sort(indices))
        enough = int(np.searchsorted(np.cumsum(dataset.tgt_sizes[shuffled]), max_tokens_used, side="right"))
        indices = indices[np.isin(indices, shuffled[: max(enough, 1)])]
    longest = max(int(dataset.src_sizes[indices].max()), int(dataset.tgt_sizes[indices].max()))
    batches = dataset.batch_by_size(indices, max_tokens=max(max_tokens, longest), required_batch_size_multiple=1)
    return [list(map(int, batch)) for batch in batches]


def collect_moments(
    model: LinearizedTransformer, dataset: FairseqDataset, batches: Iterable[Sequence[int]], *, device: torch.device
) -> ModelMoments:
    """Run the intact model over batches and return the moments of its layers, from which they can be fitted.

    Args:
        model: with the layers to fit; it is not changed.
        dataset: of sentence pairs.
        batches: indices of sentences.
        device: where the model is.
    """
    # GPUs are slow in float64, which only the sums need.
    precision = torch.float64 if device.type == "cpu" else torch.float32
    moments: ModelMoments = {}

    def add(name: str, below: Tensor, above: Tensor) -> None:
        if name not in moments:
            moments[name] = LayerMoments(below.size(1), precision=precision, device=device)
        moments[name].add(below, above)

    for numbers in batches:
        sample: dict[str, Any] = dataset.collater([dataset[number] for number in numbers])
        if device.type == "cuda":
            sample = utils.move_to_cuda(sample, device)
        inputs = sample["net_input"]
        model.observe(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], add)
    return moments


def fits_of(moments: ModelMoments, widths: Mapping[str, int], name: str) -> dict[tuple[str, str], LinearFit]:
    """Return (layer, state) -> linear layer, with the states "pair" and "output" for layers with two outputs, else "".

    Args:
        moments: of every layer.
        widths: d of each side.
        name: of the model, for error messages.

    Raises:
        UserError: the model computes values that are not finite.
    """
    fits: dict[tuple[str, str], LinearFit] = {}
    for layer, whole in moments.items():
        width = widths[layer.partition(".")[0]]
        parts = {"": whole} if whole.width == width else {"pair": whole, "output": whole.of_first(width)}
        for state, part in parts.items():
            try:
                fits[layer, state] = part.fit()
            except ValueError as error:
                raise UserError(f"{name}, {layer}: {error}; has its training diverged?") from error
    return fits
