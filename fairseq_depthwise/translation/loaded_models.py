"""What a translator translates with: models in memory, their task, how text becomes tokens, and a search."""

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
    """What a translator is asked for; the fields are the arguments of ``LoadedTranslator``."""

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
        identified_by: the files whose digests tell the models from others.
        data: the folder with the dictionaries.
        task: of the first model, for the direction that was asked for.
        text: how text becomes tokens.
        search: returns what is asked for hypotheses, given a task for any direction.
        longest: source tokens that all models take, the end of the sentence among them.
        models: none of an exported folder.
        around: what no task puts before and after a source sentence.
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
