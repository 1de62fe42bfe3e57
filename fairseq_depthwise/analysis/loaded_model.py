"""A trained model of any family with binarized data, in evaluation mode."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq import utils
from fairseq.data import BaseWrapperDataset, FairseqDataset
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.models.linearized.model import ARCHITECTURE


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
            UserError: there is no such part, or nothing in it.
        """
        empty = f"--subset {subset} of {self.data} is empty; name a part that has sentences"
        if subset not in self.task.datasets:
            pairs = self._language_pairs()
            if self._is_empty(subset, pairs):
                raise UserError(empty)
            try:
                self.task.load_dataset(subset)
            except (FileNotFoundError, KeyError) as error:  # with several directions fairseq looks one up in vain
                raise UserError(
                    f"--subset {subset}: {self.data} has no such part for {', '.join(map('-'.join, pairs))}; name one "
                    "that fairseq-preprocess made, such as valid or test"
                ) from error
        dataset = self.task.dataset(subset)
        if not len(dataset):
            raise UserError(empty)
        return dataset

    def batches(self, subset: str, *, max_sentences: int, max_tokens: int) -> Any:
        """Return an iterator with a length over batches like those of fairseq's validation, sorted by length.

        Args:
            subset: part of the data.
            max_sentences: number of sentences, the first of the part.
            max_tokens: size of a batch with padding, exceeded only by a longer sentence.

        Raises:
            UserError: there is no such part, nothing in it, or nothing that is short enough for the model.
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

    def sentence(self, subset: str, index: int) -> Tensor:
        """Return the source tokens of a sentence, 1 x T; counted from 0, as in the output of ``fairseq-generate``.

        Raises:
            UserError: there is no such sentence, or no such part.
        """
        dataset = self.sentences(subset)
        if not 0 <= index < len(dataset):
            raise UserError(
                f"--sentence-index {index} is out of range; --subset {subset} of {self.data} has the sentences 0 to "
                f"{len(dataset) - 1}"
            )
        tokens = dataset[index]["source"]
        unpadded: Tensor = tokens[tokens != self.task.source_dictionary.pad()][None]
        return unpadded

    def encode(self, sentence: str) -> Tensor:
        """Return the source tokens of a tokenized sentence, 1 x T, with ``</s>``; unknown ones are ``<unk>``.

        Raises:
            UserError: it is empty.
        """
        if not sentence.split():
            raise UserError("--sentence is empty; give a sentence as the model reads it, tokens separated by spaces")
        tokens: Tensor = self.task.source_dictionary.encode_line(sentence, add_if_not_exist=False).long()[None]
        return tokens

    def words(self, tokens: Tensor) -> list[str]:
        """Return the symbols of tokens (1 x T) in the source dictionary."""
        return [self.task.source_dictionary[token] for token in tokens[0].tolist()]

    def _language_pairs(self) -> list[tuple[str, str]]:
        """Return source and target language; several times for a task of many languages."""
        pairs = getattr(self.task, "lang_pairs", None)
        if pairs is None:
            options = self.task.cfg
            return [(str(getattr(options, "source_lang", "")), str(getattr(options, "target_lang", "")))]
        return [(source, target) for source, _, target in (pair.partition("-") for pair in pairs)]

    def _is_empty(self, subset: str, pairs: Iterable[tuple[str, str]]) -> bool:
        """Return whether a part is an empty file, which fairseq cannot open."""
        folder = utils.split_paths(self.data)[0]
        paths = [
            os.path.join(folder, f"{subset}.{first}-{second}.{source}.bin")
            for source, target in pairs
            for first, second in ((source, target), (target, source))
        ]
        return any(os.path.isfile(path) and not os.path.getsize(path) for path in paths)


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


def load_trained(path: str, data: str) -> LoadedModel:
    """Load a trained model with its data.

    Raises:
        UserError: as :func:`load_model`, or layers of it have been replaced by linear ones.
    """
    loaded = load_model(path, data)
    if loaded.architecture == ARCHITECTURE:
        raise UserError(f"{path} holds a linearized model; give the trained model that it was made from")
    return loaded


class _FirstSentences(BaseWrapperDataset):
    """The first sentences of a data set, in any order."""

    def __init__(self, dataset: FairseqDataset, count: int) -> None:
        super().__init__(dataset)
        self.count = count

    def ordered_indices(self) -> Any:
        indices = super().ordered_indices()
        return indices[indices < self.count]
