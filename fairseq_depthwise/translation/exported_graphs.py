"""Exported folders with graphs, of whatever format, to translate with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fairseq_compat import UserError, provenance
from fairseq_depthwise.backends.graph_search import Graphs, SearchLimits
from fairseq_depthwise.backends.traced import GRAPHS
from fairseq_depthwise.checkpoints import weights_folder
from fairseq_depthwise.checkpoints.recorded_paths import CONFIG
from fairseq_depthwise.translation.beam_search import Search
from fairseq_depthwise.translation.languages import languages_of, task_for
from fairseq_depthwise.translation.loaded_models import LoadedModels, ModelRequest
from fairseq_depthwise.translation.text_codec import settings_for


def open_graphs(request: ModelRequest, suffix: str, load: Callable[[Sequence[str]], Graphs]) -> LoadedModels:
    """Open the folder that a translator is asked for.

    Args:
        request: what the translator is given.
        suffix: of the files of graphs, such as ".onnx".
        load: reads these files, in the order of :data:`GRAPHS`; it runs nothing in them as code.
    """
    folder, options = request.model, request.options
    # The configuration, and whether it allows what the request asks for.
    _require_no_options_of_checkpoints(request)
    config = _config(folder)
    task = weights_folder.exported_task(folder, config)
    own_source, own_target = languages_of(task)
    task_for(task, request.source_lang or own_source, request.target_lang or own_target)  # refuses another direction
    recorded = provenance.recorded_in(config)
    provenance.require_same(folder, recorded, provenance.of_task(task), f"{folder}/dict.*.txt")
    recorded_text = weights_folder.text_options(config, folder)
    text = settings_for(
        options.text, recorded_text, task.source_dictionary, path=folder, data=folder, recorded=recorded
    )

    # The graphs, which must have the digests of those that were exported.
    files = []
    for name in GRAPHS:
        digest = config["functions"][name].get("sha256")  # none in older exports
        files.append(weights_folder.regular_file(folder, f"{name}{suffix}", digest))
    graphs = load(files)
    # Here no task adds tokens to a sentence or starts a translation: the configuration names the tokens.
    source, target, beam = config["source"], config["target"], options.beam
    limits = SearchLimits(
        beam.beam,
        beam.length_penalty,
        # One position is reserved for the end of the sentence.
        max_length=min(beam.max_length, target["longest"] - 1),
        start=target["start"],
        prefix=tuple(target["prefix"]),
    )
    search = Search(task.target_dictionary, limits, graphs)
    around = (source["prefix"], source["suffix"])
    return LoadedModels(
        files=[folder],
        # The configuration records the digests of graphs and dictionaries.
        identified_by=[os.path.join(folder, CONFIG)],
        data=folder,
        device=torch.device("cpu"),
        task=task,
        text=text,
        search=lambda task: search,
        # ``around`` includes the end of the sentence, which this limit counts as part of the line.
        longest=source["longest"] - sum(map(len, around)) + 1,
        around=around,
    )


def _require_no_options_of_checkpoints(request: ModelRequest) -> None:
    options = request.options
    for name, value in (
        ("--data", request.data),
        (f"--{options.precision}", options.precision != "fp32"),
        ("--compile", options.compile),
        ("--print-alignment", options.alignment),
        ("--constraints", options.beam.constraints),
        ("--sampling", options.beam.sampling),
    ):
        if value:
            raise UserError(f"{name} is for checkpoints, and {request.model} was exported; leave it out")


def _config(folder: str) -> dict[str, Any]:
    """Return the configuration of a folder with graphs."""
    config = weights_folder.read_config(folder)
    with weights_folder.as_written(f"{folder}/{CONFIG}"):
        file = config["functions"]["encoder"]["file"]
    if file.endswith(".pt2"):
        raise UserError(f"{folder} has programs of torch.export, which are no longer read; export the checkpoint again")
    return config
