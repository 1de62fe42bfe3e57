"""``fairseq-depthwise export``: a folder with all that translating takes, for programs that know nothing of fairseq."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from fairseq_compat import UserError, belonging
from fairseq_compat.belonging import file_digest
from fairseq_compat.files import atomic_write, copied_whole
from fairseq_compat.outputs import folder_written_whole, output_folder
from fairseq_compat.versions import recorded_versions
from fairseq_depthwise.backends.onnx_files import write_graphs
from fairseq_depthwise.backends.traced import refuse_unless_ours
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.checkpoints.weights_folder import CONFIG, FORMAT, SUBWORDS, write_weights
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.options import require_extra
from fairseq_depthwise.translation.languages import around, languages_of, recorded_task, require_graphs, target_start
from fairseq_depthwise.translation.text_codec import settings_for
from fairseq_depthwise.translation.translation_options import BeamOptions, ExportOptions, TextOptions

KIND = "export"  # what the folder's marker says it is


def export(checkpoint: str, folder: str, options: ExportOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """Export the model of a checkpoint into a new folder and return its configuration; ``say`` what is left out."""
    with_graphs = options.format == "onnx"
    if with_graphs:
        require_extra("onnx", "onnx", "onnxscript", "onnxruntime")
    files = checkpoint_files(checkpoint)
    place = output_folder("OUT", folder, KIND, force=options.force, inputs=files)
    if len(files) > 1:
        raise UserError(f"{checkpoint} are {len(files)} checkpoints; export them one by one")
    trained = Checkpoint.open(files[0])
    trained.require_family()
    if with_graphs:
        refuse_unless_ours(trained.path, ARCH_MODEL_REGISTRY[trained.architecture], trained.architecture)
    data, task = recorded_task(trained, options.data, (options.source_lang, options.target_lang))
    require_graphs(task, trained.path)
    model = cast(StackModel, trained.build_model(task).float())
    if with_graphs:
        model.prepare_for_inference_(BeamOptions().cfg())
    elif not isinstance(task, TranslationTask):  # it would be read as a model of one direction, without its tokens
        raise UserError(f"{trained.path} translates in many directions; export each with --format onnx")
    text, subwords = _text(trained, task, data, say)
    dictionaries: dict[str, Dictionary] = {"source": task.source_dictionary, "target": task.target_dictionary}
    target, search, most = dictionaries["target"], BeamOptions(), model.decoder.max_positions()
    longest = min(search.max_length, most - 1)
    (before, after), (start, prefix) = around(task), target_start(task)
    config: dict[str, Any] = {
        "format": FORMAT,
        "architecture": trained.architecture,
        "versions": recorded_versions(),
        "dtype": "int8" if options.int8 else "float32",
        "languages": dict(zip(dictionaries, languages_of(task), strict=True)),
        "vocabulary": {side: len(dictionary) for side, dictionary in dictionaries.items()},
        "symbols": {"<s>": target.bos(), "<pad>": target.pad(), "</s>": target.eos(), "<unk>": target.unk()},
        "source": {"prefix": before, "suffix": after, "longest": model.encoder.max_positions()},
        "target": {"start": start, "prefix": prefix, "longest": most},
        "search": {"beam": search.beam, "length_penalty": search.length_penalty, "max_length": longest},
        "text": text,
        belonging.ENTRY: {**belonging.of_dictionaries(task), **trained.provenance},
    }
    with folder_written_whole(place, KIND, replace=options.force) as aside:
        if with_graphs:
            config["functions"] = write_graphs([model], trained.path, aside, int8=options.int8)
            for graph in config["functions"].values():
                graph["sha256"] = file_digest(os.path.join(aside, graph["file"]))
        else:
            config |= write_weights(trained.state, trained.architecture, aside)
        for side, dictionary in zip(("src", "tgt"), dictionaries.values(), strict=True):
            dictionary.save(os.path.join(aside, f"dict.{side}.txt"))
        for source, name in subwords.items():
            copied_whole(source, os.path.join(aside, name))
        with atomic_write(os.path.join(aside, CONFIG)) as file:
            file.write(json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n")
    return config


def _text(
    checkpoint: Checkpoint, task: FairseqTask, data: str, say: Callable[[str], None]
) -> tuple[Mapping[str, Any] | None, dict[str, str]]:
    """Return how text becomes tokens, None where that is not known; and files for it with their names in the folder."""
    try:
        settings = settings_for(
            TextOptions(), checkpoint.cfg, task.source_dictionary, path=checkpoint.path, data=data,
            recorded=checkpoint.provenance,
        )  # fmt: skip
    except UserError as error:
        say(f"how text becomes tokens is left out: {error}")
        return None, {}
    text = {"tokenizer": None, "bpe": None, **settings.tokenizer, **settings.bpe}
    files = {}
    for option, name in SUBWORDS.items():
        if settings.bpe.get(option):
            files[text[option]] = text[option] = name
    return text, files
