"""A folder that ``fairseq-depthwise export`` wrote, read again: to translate with it in the place of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from fairseq_compat import UserError, belonging
from fairseq_depthwise.backends import onnx_files
from fairseq_depthwise.backends.graph_search import SearchLimits
from fairseq_depthwise.backends.traced import GRAPHS
from fairseq_depthwise.checkpoints import weights_folder as folders
from fairseq_depthwise.checkpoints.recorded_paths import WEIGHTS
from fairseq_depthwise.checkpoints.weights_folder import CONFIG
from fairseq_depthwise.translation.beam_search import Search
from fairseq_depthwise.translation.direction import LoadedModels
from fairseq_depthwise.translation.languages import languages_of, task_for
from fairseq_depthwise.translation.text_codec import settings_for
from fairseq_depthwise.translation.translation_options import TranslatorOptions


def is_exported(path: str) -> bool:
    """Return whether there is a folder with exported graphs; one with weights is a checkpoint."""
    return path != "" and os.path.isfile(os.path.join(path, CONFIG)) and not os.path.exists(os.path.join(path, WEIGHTS))


def exported_model(
    model: str, data: str | None, languages: tuple[str | None, str | None], options: TranslatorOptions,
    device: torch.device, say: Callable[[str], None],
) -> LoadedModels:  # fmt: skip
    """Return what is in the folder, of which nothing is run as code; arguments as of ``LoadedTranslator``."""
    given = {
        "--data": data, f"--{options.precision}": options.precision != "fp32", "--compile": options.compile,
        "--print-alignment": options.alignment, "--constraints": options.beam.constraints,
        "--sampling": options.beam.sampling,
    }  # fmt: skip
    for name, value in given.items():
        if value:
            raise UserError(f"{name} is for checkpoints, and {model} was exported; leave it out")
    config = _config(model)
    task = folders.exported_task(model, config)
    own_source, own_target = languages_of(task)
    task_for(task, languages[0] or own_source, languages[1] or own_target)  # refuses another direction
    belongs_to = belonging.recorded_in(config)
    belonging.require_same(model, belongs_to, belonging.of_task(task), f"{model}/dict.*.txt")
    cfg = folders.text_options(config, model)
    text = settings_for(options.text, cfg, task.source_dictionary, path=model, data=model, recorded=belongs_to)
    digests = {name: config["functions"][name].get("sha256") for name in GRAPHS}  # none in older exports
    graphs = [folders.regular_file(model, f"{name}.onnx", digests[name]) for name in GRAPHS]
    source, target, beam = config["source"], config["target"], options.beam
    around = (source["prefix"], source["suffix"])
    most = min(beam.max_length, target["longest"] - 1)
    limits = SearchLimits(beam.beam, beam.length_penalty, most, target["start"], tuple(target["prefix"]))
    search = Search(task.target_dictionary, limits, onnx_files.load(graphs))
    longest = source["longest"] - sum(map(len, around)) + 1
    return LoadedModels([model], model, torch.device("cpu"), task, text, lambda task: search, longest, around=around)


def _config(path: str) -> dict[str, Any]:
    """Return the configuration of a folder with graphs."""
    config = folders.read_config(path)
    with folders.as_written(f"{path}/{CONFIG}"):
        file = config["functions"]["encoder"]["file"]
    if file.endswith(".pt2"):
        raise UserError(f"{path} has programs of torch.export, which are no longer read; export the checkpoint again")
    return config
