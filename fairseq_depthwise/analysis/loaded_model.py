"""A trained model of any family with binarized data, in evaluation mode."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import FairseqDataset
from fairseq.data.data_utils import numpy_seed
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from torch.utils.data import DataLoader

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

#: Seed of the choice of sentences.
_SEED = 1


@dataclass(frozen=True)
class LoadedModel:
    """A model on the CPU in evaluation mode, in float32, and the task that reads its data.

    The task has the dictionaries of the folder ``data`` and the checkpoint's languages.
    """

    checkpoint: Checkpoint
    model: FairseqEncoderDecoderModel
    task: FairseqTask
    data: str

    @property
    def path(self) -> str:
        """The file of the checkpoint."""
        return self.checkpoint.path

    @property
    def architecture(self) -> str:
        """The ``--arch`` of the training."""
        return self.checkpoint.architecture

    def sentences(self, subset: str) -> FairseqDataset:
        """Return a part of the data: ``valid``, ``test``, ...; raise UserError if there is none of this name."""
        if subset not in self.task.datasets:
            try:
                self.task.load_dataset(subset)
            except (FileNotFoundError, KeyError) as error:  # with several directions fairseq looks one up in vain
                raise UserError(
                    f"--data {self.data} has no part {subset} in the languages of {self.path}; name one that "
                    "fairseq-preprocess made, such as valid or test"
                ) from error
        return self.task.dataset(subset)

    def batches(
        self, subset: str, *, max_tokens: int, max_sentences: int | None = None, max_tokens_used: int = 0
    ) -> DataLoader[Any]:
        """Return batches of sentences of similar length.

        Args:
            subset: part of the data.
            max_tokens: in a batch with padding, unless a sentence is longer.
            max_sentences: take the first N sentences of the part.
            max_tokens_used: take sentences at random, always the same, with at most so many target tokens in all,
                unless the first has more; 0 for all.
        """
        dataset: Any = self.sentences(subset)
        limits = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        with numpy_seed(_SEED):  # sentences of one length come in random order
            indices = dataset.ordered_indices()
        if max_sentences is not None:
            indices = indices[indices < max_sentences]
        indices = self.task.filter_indices_by_size(indices, dataset, limits, ignore_invalid_inputs=True)
        if max_tokens_used:
            # As many of the shuffled sentences as the budget has tokens for.
            shuffled = np.random.default_rng(_SEED).permutation(np.sort(indices))
            tokens = np.cumsum(dataset.tgt_sizes[shuffled])
            count = int(np.searchsorted(tokens, max_tokens_used, side="right"))
            indices = indices[np.isin(indices, shuffled[: max(count, 1)])]

        if dataset.supports_prefetch:
            dataset.prefetch(indices)
        # fairseq refuses batches for which a sentence is too long.
        longest = max(dataset.num_tokens(index) for index in indices)
        batches = dataset.batch_by_size(indices, max_tokens=max(max_tokens, longest), required_batch_size_multiple=1)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=dataset.collater)


def load_model(path: str, data: str, *, family: str | None = None, with_digest: bool = False) -> LoadedModel:
    """Load a checkpoint for a folder that ``fairseq-preprocess`` made, of a ``family`` and its presets if given.

    Task, languages and options are the checkpoint's; its own data folder, and files that are only used to start
    training, need not exist any more.
    """
    if not os.path.isdir(utils.split_paths(data)[0]):
        raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
    checkpoint = Checkpoint.open(path, with_digest=with_digest)
    checkpoint.require_family(family)
    task = checkpoint.build_task(data)
    return LoadedModel(checkpoint, checkpoint.build_model(task), task, data)
