"""Opens the checkpoints to translate with: one, or several whose probabilities are averaged."""

from __future__ import annotations

from typing import Any

import torch
from fairseq import utils

from fairseq_compat import UserError
from fairseq_depthwise.backends import make_graphs
from fairseq_depthwise.backends.graph_cache import any_cached
from fairseq_depthwise.backends.graph_search import Graphs
from fairseq_depthwise.backends.traced import refuse_unless_ours
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.translation.beam_search import BeamSearch
from fairseq_depthwise.translation.languages import recorded_task, require_exportable, source_affixes
from fairseq_depthwise.translation.loaded_models import LoadedModels, ModelRequest
from fairseq_depthwise.translation.text_codec import TextSettings, settings_for
from fairseq_depthwise.translation.translation_options import TextOptions, TranslatorOptions

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def open_models(request: ModelRequest) -> LoadedModels:
    """Open the checkpoints that a request names."""
    options, device = request.options, request.device
    # 1. The task, with data and languages of the first checkpoint; all others must agree.
    files = checkpoint_files(request.model)
    checkpoints = list(map(Checkpoint.open, files))
    first = checkpoints[0]
    first.require_family()
    data, task = recorded_task(first, request.data, (request.source_lang, request.target_lang))
    # 2. How text becomes tokens, and tokens text.
    text = settings_for(
        options.text, first.cfg, task.source_dictionary, path=first.path, data=data, recorded=first.provenance
    )
    for other in checkpoints[1:]:
        # A line is tokenized once for all models of the ensemble.
        _require_same_text(other, first, text, options.text)

    # 3. The models, prepared for inference, and perhaps graphs of them.
    dtype = _DTYPES.get(options.precision, torch.float32)
    models: list[Any] = [checkpoint.build_model(task).to(device, dtype) for checkpoint in checkpoints]
    search = BeamSearch(task, models, options.beam, device)  # prepares the models for inference
    if search.refines:
        _require_one_hypothesis(first.path, options)
    graphs = _make_graphs(models, task, request, name=":".join(files))
    # 4. The longest line that all models accept, less the tokens that the task puts before it.
    positions = utils.resolve_max_positions(task.max_positions(), *(model.max_positions() for model in models))
    longest: int = positions[0] if isinstance(positions, tuple | list) else positions
    return LoadedModels(
        files=files,
        identified_by=files,
        data=data,
        device=device,
        task=task,
        text=text,
        # Models and graphs serve every direction; a search serves one.
        search=lambda task: BeamSearch(task, models, options.beam, device, graphs),
        longest=longest - len(source_affixes(task)[0]),
        models=models,
    )


def _require_same_text(other: Checkpoint, first: Checkpoint, text: TextSettings, options: TextOptions) -> None:
    """Raise UserError if another model of an ensemble was trained with a different tokenizer or different subwords."""
    text.require(other.path, other.provenance)
    for kind in ("tokenizer", "bpe"):
        is_named = options.tokenized or getattr(options, kind) or getattr(text, kind)
        if kind in other.provenance and not is_named:
            raise UserError(
                f"{other.path} was trained with --{kind} {other.provenance[kind]}, and {first.path} names none; give "
                f"--{kind}, or --tokenized"
            )


def _require_one_hypothesis(path: str, options: TranslatorOptions) -> None:
    """Raise UserError if options ask for what only a word-by-word search has."""
    for name, is_set in (
        ("--sampling", options.beam.sampling),
        ("--constraints", options.beam.constraints is not None),
        ("--nbest", options.nbest > 1),
        ("--print-alignment", options.alignment is not None),
    ):
        if is_set:
            raise UserError(f"{name} is for models that translate word by word, and {path} refines whole translations")


def _make_graphs(models: list[Any], task: Any, request: ModelRequest, name: str) -> Graphs | None:
    """Return graphs from the backend that the options ask for, or else compiled ones if the cache has them.

    Models that cannot be compiled translate without graphs; for int8 this is an error.
    """
    options, device = request.options, request.device
    is_int8 = options.precision == "int8"
    is_asked_for = is_int8 or bool(options.compile)
    # Looking one up means hashing all weights, so this is done only if any model at all has been compiled.
    may_be_cached = options.compile is None and device.type == "cpu" and not options.beam.sampling
    if not is_asked_for and not (may_be_cached and any_cached("compiled")):
        return None
    try:
        require_exportable(task, name)
        for model in models:
            refuse_unless_ours(name, type(model))
        if device.type != "cpu":
            raise UserError(f"{'--int8' if is_int8 else '--compile'} is for CPUs, and a GPU is in use; add --cpu")
        return make_graphs("int8" if is_int8 else "compiled", models, name, request.say, anew=is_asked_for)
    except UserError as error:
        if is_int8:
            raise
        if is_asked_for:
            request.say(f"not compiled, and slower: {error}")
        return None
