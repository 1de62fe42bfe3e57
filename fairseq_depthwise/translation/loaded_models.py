"""What a translator needs: models in memory, their task, a search, and how text becomes tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.tasks import FairseqTask

from fairseq_depthwise.translation.beam_search import Search
from fairseq_depthwise.translation.text_codec import TextSettings
from fairseq_depthwise.translation.translation_options import TranslatorOptions


@dataclass(frozen=True)
class ModelRequest:
    """A request for a translator; its fields are the arguments of ``LoadedTranslator``."""

    model: str
    data: str | None
    source_lang: str | None
    target_lang: str | None
    options: TranslatorOptions
    device: torch.device
    say: Callable[[str], None]


@dataclass
class LoadedModels:
    """What a translator is made of.

    Attributes:
        files: checkpoints, or the exported folder.
        identified_by: files whose digests identify the models.
        data: the folder with the dictionaries.
        task: of the first model, for the requested direction.
        text: how text becomes tokens.
        search: returns the search for a direction, given the task for it.
        longest: the most source tokens that all models accept, including the end of the sentence.
        models: empty for graphs.
        around: tokens before and after each source sentence, if no task adds them.
    """

    files: list[str]
    identified_by: list[str]
    data: str
    device: torch.device
    task: FairseqTask
    text: TextSettings
    search: Callable[[FairseqTask], Search]
    longest: int
    models: list[Any] = field(default_factory=list)
    around: tuple[list[int], list[int]] | None = None
