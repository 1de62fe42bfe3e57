"""``fairseq-depthwise export``: a folder with all that translating needs, for programs that do not know fairseq."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairseq.tasks import FairseqTask

from fairseq_compat import UserError, provenance
from fairseq_compat.files import atomic_write, copied_whole
from fairseq_compat.outputs import folder_written_whole
from fairseq_compat.versions import recorded_versions
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import CONFIG
from fairseq_depthwise.checkpoints.weights_folder import FORMAT, SUBWORDS
from fairseq_depthwise.translation.export_formats import FORMATS, KIND
from fairseq_depthwise.translation.languages import (
    languages_of,
    recorded_task,
    require_exportable,
    source_affixes,
    target_start,
)
from fairseq_depthwise.translation.text_codec import settings_for
from fairseq_depthwise.translation.translation_options import BeamOptions, ExportOptions, TextOptions


def export(checkpoint: Checkpoint, folder: str, options: ExportOptions, say: Callable[[str], None]) -> dict[str, Any]:
    """Export the model of a checkpoint into a folder that appears whole or not at all; return its configuration.

    ``say`` is called with messages about what is left out.
    """
    # 1. Refuse what cannot be exported.
    checkpoint.require_family()
    export_format = FORMATS[options.format].load()
    export_format.require_exportable(checkpoint)
    # 2. Build the model, and find out how text becomes tokens.
    data, task = recorded_task(checkpoint, options.data, (options.source_lang, options.target_lang))
    require_exportable(task, checkpoint.path)
    model = checkpoint.build_model(task).float()
    text = _text(checkpoint, task, data, say)
    # 3. Write the folder: graphs or weights, dictionaries, subwords, and the configuration that describes them.
    config = {
        "format": FORMAT,
        "architecture": checkpoint.architecture,
        "versions": recorded_versions(),
        "dtype": "int8" if options.int8 else "float32",
        **_description(task, model),
        "text": text.settings,
        provenance.ENTRY: {**provenance.of_dictionaries(task), **checkpoint.provenance},
    }
    # The format adds what it wrote, such as files and their digests.
    with folder_written_whole(folder, KIND, replace=options.force) as unfinished:
        config |= export_format.write(checkpoint, model, task, unfinished, int8=options.int8)
        task.source_dictionary.save(os.path.join(unfinished, "dict.src.txt"))
        task.target_dictionary.save(os.path.join(unfinished, "dict.tgt.txt"))
        for source, name in text.files.items():
            copied_whole(source, os.path.join(unfinished, name))
        with atomic_write(os.path.join(unfinished, CONFIG)) as file:
            file.write(json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n")
    return config


def _description(task: FairseqTask, model: Any) -> dict[str, Any]:
    """Return what a search must know about a model: languages, special tokens, lengths and defaults."""
    source_dictionary, target_dictionary = task.source_dictionary, task.target_dictionary
    source_lang, target_lang = languages_of(task)
    before, after = source_affixes(task)
    start, prefix = target_start(task)
    search, longest = BeamOptions(), model.decoder.max_positions()
    return {
        "languages": {"source": source_lang, "target": target_lang},
        "vocabulary": {"source": len(source_dictionary), "target": len(target_dictionary)},
        "symbols": {
            "<s>": target_dictionary.bos(),
            "<pad>": target_dictionary.pad(),
            "</s>": target_dictionary.eos(),
            "<unk>": target_dictionary.unk(),
        },
        "source": {"prefix": before, "suffix": after, "longest": model.encoder.max_positions()},
        "target": {"start": start, "prefix": prefix, "longest": longest},
        "search": {
            "beam": search.beam,
            "length_penalty": search.length_penalty,
            "max_length": min(search.max_length, longest - 1),
        },
    }


class _Text(NamedTuple):
    """How text becomes tokens, None if that is unknown; and the files for it -> their names in the folder."""

    settings: Mapping[str, Any] | None
    files: Mapping[str, str]


def _text(checkpoint: Checkpoint, task: FairseqTask, data: str, say: Callable[[str], None]) -> _Text:
    try:
        settings = settings_for(
            TextOptions(),
            checkpoint.cfg,
            task.source_dictionary,
            path=checkpoint.path,
            data=data,
            recorded=checkpoint.provenance,
        )
    except UserError as error:
        say(f"how text becomes tokens is left out: {error}")
        return _Text(None, {})
    text = {"tokenizer": None, "bpe": None, **settings.tokenizer, **settings.bpe}
    files = {}
    for option, name in SUBWORDS.items():
        if settings.bpe.get(option):
            files[text[option]] = name
            # The name in the folder: this machine's path would mean nothing elsewhere.
            text[option] = name
    return _Text(text, files)
