"""A checkpoint loaded for analysis, together with the data that fairseq-preprocess made."""

from __future__ import annotations

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
from fairseq_depthwise.checkpoints.recorded_paths import require_data

#: Seed for sampling and ordering sentences.
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

    def dataset(self, subset: str) -> FairseqDataset:
        """Return the sentences of a subset of the data: ``valid``, ``test``, ...

        Raises:
            UserError: there is no subset of this name.
        """
        if subset not in self.task.datasets:
            try:
                self.task.load_dataset(subset)
            except (FileNotFoundError, KeyError) as error:  # KeyError: multilingual tasks look the subset up in a dict
                raise UserError(
                    f"--data {self.data} has no part {subset} in the languages of {self.path}; name one that "
                    "fairseq-preprocess made, such as valid or test"
                ) from error
        return self.task.dataset(subset)

    def batches(
        self, subset: str, *, max_tokens: int, max_sentences: int | None = None, target_token_budget: int | None = None
    ) -> DataLoader[Any]:
        """Return batches of sentences of similar length.

        Args:
            subset: name of the subset.
            max_tokens: maximum tokens in a batch, padding included; raised to the length of the longest sentence.
            max_sentences: take the first N sentences of the subset; None for all.
            target_token_budget: sample sentences, with a fixed seed, until the budget of target tokens is used, at
                least one; None for all.
        """
        dataset: Any = self.dataset(subset)
        limits = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        # ordered_indices shuffles sentences of equal length with numpy's global generator.
        with numpy_seed(_SEED):
            indices = dataset.ordered_indices()
        if max_sentences is not None:
            indices = indices[indices < max_sentences]  # indices are positions in the file
        indices = self.task.filter_indices_by_size(indices, dataset, limits, ignore_invalid_inputs=True)
        if target_token_budget is not None:
            # Sorted first, so that the sample does not depend on the order above.
            shuffled = np.random.default_rng(_SEED).permutation(np.sort(indices))
            tokens = np.cumsum(dataset.tgt_sizes[shuffled])
            count = int(np.searchsorted(tokens, target_token_budget, side="right"))
            sample = shuffled[: max(count, 1)]
            indices = indices[np.isin(indices, sample)]  # keeps the order by length

        if dataset.supports_prefetch:
            dataset.prefetch(indices)
        # fairseq raises if a single sentence exceeds max_tokens.
        longest = max(dataset.num_tokens(index) for index in indices)
        batches = dataset.batch_by_size(indices, max_tokens=max(max_tokens, longest), required_batch_size_multiple=1)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=dataset.collater)


def load_model(path: str, data: str, *, family: str | None = None, with_digest: bool = False) -> LoadedModel:
    """Load a checkpoint to be run on the data in a folder that ``fairseq-preprocess`` made.

    Task, languages and options come from the checkpoint. The data folder of its training, and files that only the start
    of training reads, need not exist any more.

    Args:
        path: the checkpoint.
        data: the folder of the data.
        family: require this family or one of its presets; None for any.
        with_digest: compute the digest of the checkpoint's file.
    """
    require_data(data)
    checkpoint = Checkpoint.open(path, with_digest=with_digest)
    checkpoint.require_family(family)
    task = checkpoint.build_task(data)
    return LoadedModel(checkpoint, checkpoint.build_model(task), task, data)
