"""The models of a translator: checkpoints, searched with themselves or with graphs that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import utils
from fairseq.tasks import FairseqTask

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.beam_search import BeamSearch, Search
from fairseq_depthwise.serving.compiled_graphs import compiled_graphs
from fairseq_depthwise.serving.directions import around, recorded_task
from fairseq_depthwise.serving.onnx_graphs import int8_graphs
from fairseq_depthwise.serving.options import TranslatorOptions
from fairseq_depthwise.serving.text_codec import TextSettings, settings_for
from fairseq_depthwise.serving.traced_graphs import refuse_unless_ours

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class LoadedModels:
    """What a translator is made of."""

    files: list[str]  # checkpoints, or the exported folder
    data: str  # the folder with the dictionaries
    device: torch.device
    task: FairseqTask  # of the first, for the direction that was asked for
    text: TextSettings
    search: Callable[[FairseqTask], Search]  # of a task for any direction
    longest: int  # source tokens that all models take, the end of the sentence among them
    models: list[Any] = field(default_factory=list)  # none of an exported folder
    around: tuple[list[int], list[int]] | None = None  # what no task puts before and after a source sentence


def trained_models(
    model: str, data: str | None, languages: tuple[str | None, str | None], options: TranslatorOptions,
    device: torch.device, say: Callable[[str], None],
) -> LoadedModels:  # fmt: skip
    """Return one checkpoint, or several whose probabilities are averaged; arguments as of ``LoadedTranslator``."""
    files = checkpoint_files(model)
    first, *others = map(Checkpoint, files)
    first.require_family()
    data, task = recorded_task(first, data, languages)
    text = settings_for(
        options.text, first.cfg, task.source_dictionary, path=first.path, data=data, recorded=first.belongs_to
    )
    for other in others:
        text.require(other.path, other.belongs_to)
    dtype = _TYPES.get(options.precision, torch.float32)
    models: list[Any] = [one.model(task, data).to(device, dtype) for one in (first, *others)]
    BeamSearch(task, models, options.beam, device)  # makes them ready
    graphs = _graphs(models, ":".join(files), options, device, say)
    positions = utils.resolve_max_positions(task.max_positions(), *(one.max_positions() for one in models))
    longest: int = positions[0] if isinstance(positions, tuple | list) else positions
    return LoadedModels(
        files, data, device, task, text, lambda task: BeamSearch(task, models, options.beam, device, graphs),
        longest - len(around(task)[0]), models,
    )  # fmt: skip


def _graphs(
    models: list[Any], path: str, options: TranslatorOptions, device: torch.device, say: Callable[[str], None]
) -> Graphs | None:
    """Return graphs where options ask for them; models that cannot be compiled translate as they are."""
    int8 = options.precision == "int8"
    if not (int8 or options.compile):
        return None
    try:
        for model in models:
            refuse_unless_ours(path, type(model))
        if device.type != "cpu":
            raise UserError(f"{'--int8' if int8 else '--compile'} is for CPUs, and a GPU is in use; add --cpu")
        return (int8_graphs if int8 else compiled_graphs)(models, path, say)
    except UserError as error:
        if int8:
            raise
        say(f"not compiled, and slower: {error}")
        return None
