"""Beam search over a part of binarised data, with a model that is in memory already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel
from fairseq_depthwise.serving.beam_search import BeamOptions, BeamSearch


@dataclass(frozen=True)
class SearchOptions:
    """How to translate.

    Attributes:
        subset: part of the data.
        beam: hypotheses that are kept.
        length_penalty: fairseq's ``--lenpen``.
        max_tokens: source tokens in a batch.
        post_process: fairseq's name for what makes words of subwords; None leaves the tokens as they are.
    """

    subset: str = "test"
    beam: int = 4
    length_penalty: float = 0.6
    max_tokens: int = 4096
    post_process: str | None = None


class Translator:
    """A model made ready for translation, and sentences with their references.

    Args:
        loaded: the task and the data.
        model: what translates, with the task's dictionaries.
        options: how.
        device: where the model is.

    Raises:
        UserError: there is no such part of the data, or nothing in it.
    """

    def __init__(
        self, loaded: LoadedModel, model: BaseFairseqModel, options: SearchOptions, device: torch.device
    ) -> None:
        self.loaded = loaded
        self.options = options
        self.search = BeamSearch(loaded.task, [model], BeamOptions(options.beam, options.length_penalty), device)

    def translate(self, progress: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
        """The best hypothesis of each sentence, in the order of the data; empty where one is too long for the model.

        Args:
            progress: called with the number of sentences done and of all.
        """
        subset = self.options.subset
        count = len(self.loaded.sentences(subset))
        found = [""] * count
        done = 0
        batches = self.loaded.batches(subset, max_sentences=count, max_tokens=self.options.max_tokens)
        for batch in batches:
            hypotheses = self.search.hypotheses(batch)
            for index, best in zip(batch["id"].tolist(), hypotheses, strict=True):
                found[index] = self.search.text(best[0]["tokens"], self.options.post_process)
            done += len(hypotheses)
            progress(done, count)
        return found


def references_of(loaded: LoadedModel, options: SearchOptions) -> list[str]:
    """The target side of a part of the data, in its order, as words.

    What is not in the dictionary is written as ``<<unk>>``, which no translation has.

    Raises:
        UserError: the data has no such part, or no references.
    """
    dataset: Any = loaded.sentences(options.subset)
    if getattr(dataset, "tgt", None) is None:
        raise UserError(f"--subset {options.subset} of {loaded.data} has no references, so nothing can be scored")
    dictionary = loaded.task.target_dictionary
    return [
        dictionary.string(dataset[index]["target"].int(), options.post_process, escape_unk=True)
        for index in range(len(dataset))
    ]
