"""A trained model of any family with binarized data, in evaluation mode."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.data import BaseWrapperDataset, FairseqDataset
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint


@dataclass(frozen=True)
class LoadedModel:
    """A model on the CPU in evaluation mode, and the task that reads its data.

    Attributes:
        path: the checkpoint.
        architecture: as given in training, with ``--arch``.
        model: with the checkpoint's parameters, in float32.
        task: with the data folder's dictionaries and the checkpoint's languages.
        data: the data folder.
    """

    path: str
    architecture: str
    model: FairseqEncoderDecoderModel
    task: FairseqTask
    data: str

    def sentences(self, subset: str) -> FairseqDataset:
        """Return a part of the data: ``valid``, ``test``, ...

        Raises:
            UserError: there is no such part.
        """
        if subset not in self.task.datasets:
            try:
                self.task.load_dataset(subset)
            except (FileNotFoundError, KeyError) as error:  # with several directions fairseq looks one up in vain
                raise UserError(
                    f"--data {self.data} has no part {subset} in the languages of {self.path}; name one that "
                    "fairseq-preprocess made, such as valid or test"
                ) from error
        return self.task.dataset(subset)

    def batches(self, subset: str, *, max_sentences: int, max_tokens: int) -> Any:
        """Return an iterator with a length over batches like those of fairseq's validation, sorted by length.

        Args:
            subset: part of the data.
            max_sentences: number of sentences, the first of the part.
            max_tokens: size of a batch with padding, exceeded only by a longer sentence.
        """
        chosen = _FirstSentences(self.sentences(subset), max_sentences)
        longest = max(chosen.num_tokens(index) for index in range(min(max_sentences, len(chosen))))
        return self.task.get_batch_iterator(
            dataset=chosen,
            max_tokens=max(max_tokens, longest),
            max_positions=utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions()),
            ignore_invalid_inputs=True,
            disable_iterator_cache=True,
        ).next_epoch_itr(shuffle=False)


def load_model(path: str, data: str, *, family: str | None = None) -> LoadedModel:
    """Load a checkpoint for a folder of binarized data.

    Task, languages and options are the checkpoint's; its own data folder, and files that are only used to start
    training, need not exist any more.

    Args:
        path: a checkpoint of any architecture that is registered.
        data: a folder that ``fairseq-preprocess`` made.
        family: the model must be one of this name, or of its presets.

    Raises:
        UserError: the file is no checkpoint, or of another family; the folder is missing or has other dictionaries.
    """
    if not os.path.isdir(utils.split_paths(data)[0]):
        raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
    checkpoint = Checkpoint(path)
    checkpoint.require_family(family)
    task = checkpoint.task(data)
    return LoadedModel(path, checkpoint.architecture, checkpoint.model(task, data), task, data)


class _FirstSentences(BaseWrapperDataset):
    """The first sentences of a data set, in any order."""

    def __init__(self, dataset: FairseqDataset, count: int) -> None:
        super().__init__(dataset)
        self.count = count

    def ordered_indices(self) -> Any:
        indices = super().ordered_indices()
        return indices[indices < self.count]
