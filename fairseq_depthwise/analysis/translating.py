"""Beam search over a part of binarised data, with a model that is in memory already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import BaseFairseqModel
from fairseq_cli.generate import get_symbols_to_strip_from_output
from omegaconf import OmegaConf

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import LoadedModel

#: What ``--post-process`` of fairseq calls the subwords of each kind, and their mark in a dictionary.
_SUBWORDS: dict[str, Callable[[str], bool]] = {
    "sentencepiece": lambda symbol: symbol.startswith("\u2581"),
    "subword_nmt": lambda symbol: symbol.endswith("@@"),
}


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


def post_process_for(dictionary: Dictionary) -> str | None:
    """What makes words of a dictionary's entries: ``sentencepiece``, ``subword_nmt``, or None where they are words."""
    for name, is_mark in _SUBWORDS.items():
        if any(map(is_mark, dictionary.symbols)):
            return name
    return None


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
        self.model = model
        self.options = options
        self.device = device
        cfg = OmegaConf.structured(FairseqConfig)
        cfg.generation.beam = options.beam
        cfg.generation.lenpen = options.length_penalty
        model.prepare_for_inference_(cfg)
        self.generator: Any = loaded.task.build_generator([model], cfg.generation)

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
            moved = utils.move_to_cuda(batch, self.device) if self.device.type == "cuda" else batch
            hypotheses = self.loaded.task.inference_step(self.generator, [self.model], moved)
            for index, best in zip(batch["id"].tolist(), hypotheses, strict=True):
                found[index] = self.loaded.task.target_dictionary.string(
                    best[0]["tokens"].int().cpu(),
                    self.options.post_process,
                    extra_symbols_to_ignore=get_symbols_to_strip_from_output(self.generator),
                )
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
