"""Folders of ``export``: their configuration, and the weights of ``--format safetensors``, read like a checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import DatasetConfig
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.files import atomic_write
from fairseq_compat.plain_values import require_plain
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.checkpoints.recorded_paths import CONFIG, WEIGHTS
from fairseq_depthwise.checkpoints.sizes import first_of_each_memory
from fairseq_depthwise.options import require_extra

FORMAT = 2  # the version of the folder's layout, ``format`` in its configuration

#: Option that names a file of subwords -> the file's name in the folder.
SUBWORDS = {"bpe_codes": "bpe.codes", "sentencepiece_model": "sentencepiece.model"}


def write_weights(state: Mapping[str, Any], architecture: str, folder: str) -> dict[str, Any]:
    """Write the weights of a checkpoint, and return the model's part of the folder's configuration."""
    require_extra("safetensors", "safetensors")
    from safetensors.torch import save

    # Sorted, so that the same weights always give the same bytes.
    values = dict(sorted(state["model"].items()))
    first_names = first_of_each_memory(values)
    # A weight with several names is stored once. All other names are one metadata entry: several would have no order.
    once = {name: values[name].clone(memory_format=torch.contiguous_format) for name in set(first_names.values())}
    other_names = {name: first_name for name, first_name in first_names.items() if name != first_name}
    content = save(once, {"other names": json.dumps(other_names)})
    with atomic_write(os.path.join(folder, WEIGHTS)) as file:
        file.write(content)

    return {
        "family": ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture),
        "options": declared_options(state, architecture),
        "weights": {"file": WEIGHTS, "sha256": hashlib.sha256(content).hexdigest()},
    }


def declared_options(state: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return the options of a checkpoint's model that its architecture declares; a folder has no others."""
    recorded = checkpoints.options_in(state)
    options = {}
    for name in sorted(_declared_names(architecture)):
        # Paths, such as those of pretrained embeddings, mean nothing on another machine.
        if name in recorded and not name.endswith("_path"):
            options[name] = recorded[name]
    return options


def model_options(options: Mapping[str, Any], architecture: str) -> dict[str, Any] | Namespace:
    """Return declared options in the form of fairseq's checkpoints: a namespace for its own models."""
    named = {**options, "_name": architecture}
    return named if provenance.options_class(architecture) else Namespace(**named)


def _declared_names(architecture: str) -> Iterable[str]:
    """Return the names of a model's options; some checkpoints have all options of the training in one place."""
    fields: Mapping[str, Any] | None = getattr(provenance.options_class(architecture), "__dataclass_fields__", None)
    if fields is not None:
        return fields
    parser = ArgumentParser(conflict_handler="resolve")
    ARCH_MODEL_REGISTRY[architecture].add_args(parser)
    # Models such as fairseq's lstm read these two without declaring them.
    return {"max_source_positions", "max_target_positions", *(action.dest for action in parser._actions)}


def read_weights(file: str) -> dict[str, Any]:
    """Return the state of a checkpoint, made of weights and the files beside them; nothing is run as code."""
    require_extra("safetensors", "safetensors")
    from safetensors.torch import load

    folder = os.path.dirname(file) or "."
    config = read_config(folder)
    with as_written(folder):
        # Read once, so that the bytes with the right digest are the bytes that are used.
        content = Path(regular_file(folder, WEIGHTS)).read_bytes()
        if hashlib.sha256(content).hexdigest() != config["weights"]["sha256"]:
            raise UserError(f"{file} is damaged, or not the one that was exported; export the checkpoint again")
        values = load(content)
        # load() returns tensors only. A file begins with its header, in JSON, after the header's size in 8 bytes.
        header_size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + header_size])
        other_names = json.loads(header.get("__metadata__", {}).get("other names", "{}"))
        values |= {name: values[first_name] for name, first_name in other_names.items()}
        model = model_options(config["options"], config["architecture"])
        task = {**_task_defaults(), **_languages(config), "_name": "translation", "data": folder}
        state = {
            "args": None,
            "cfg": {"model": model, "task": task, **text_options(config, folder)},
            "model": values,
            "extra_state": {provenance.ENTRY: provenance.recorded_in(config)},
            "exported": config,
        }
    checkpoints.require_checkpoint(state, file)
    return state


def read_config(folder: str) -> dict[str, Any]:
    """Return the configuration, which may hold only plain values."""
    file = regular_file(folder, CONFIG)
    with as_written(file), open(file, encoding="utf-8") as opened:
        config: dict[str, Any] = json.load(opened)
        require_plain(config)
        version = config["format"]
        if version != FORMAT:
            raise UserError(f"{file} has format {str(version)[:60]}, not {FORMAT}; export the checkpoint again")
    return config


def exported_task(folder: str, config: Mapping[str, Any]) -> TranslationTask:
    """Return the task for a folder's direction, with its dictionaries and the training's limits."""
    dictionaries = []
    for name, side in (("src", "source"), ("tgt", "target")):
        dictionary = Dictionary.load(regular_file(folder, f"dict.{name}.txt"))
        size = config["vocabulary"][side]
        if len(dictionary) != size:
            raise UserError(
                f"{folder}/dict.{name}.txt has {len(dictionary)} symbols, not {size}; export the checkpoint again"
            )
        dictionaries.append(dictionary)
    limits = provenance.limits_in(Namespace(**provenance.recorded_in(config)))
    return TranslationTask(TranslationConfig(data=folder, **_languages(config), **limits), *dictionaries)


def _task_defaults() -> dict[str, Any]:
    """Return those options of the task that are interpolated from other parts of fairseq's configuration."""
    of_data = DatasetConfig()
    return {name: getattr(of_data, name) for name in ("train_subset", "dataset_impl", "required_seq_len_multiple")}


def _languages(config: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{side}_lang": config["languages"][side] for side in ("source", "target")}


def text_options(config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return options of tokenizer and subwords as a training records them, with files in the folder."""
    recorded = config["text"] or {}
    files = {option: os.path.join(folder, name) for option, name in SUBWORDS.items() if option in recorded}
    options = {}
    for kind in ("tokenizer", "bpe"):
        if recorded.get(kind):
            options[kind] = {**recorded, **files, "_name": str(recorded[kind])}
    return options


def regular_file(folder: str, name: str, digest: str | None = None) -> str:
    """Return the path of a file in the folder; it must be a regular file, with the digest if one is given."""
    file = os.path.join(folder, name)
    if os.path.islink(file) or not os.path.isfile(file):  # reading a pipe would block
        raise UserError(f"{file} is missing, or is no file; give a folder that fairseq-depthwise export wrote")
    if digest is not None and digest != file_digest(file):
        raise UserError(f"{file} is damaged, or not the one that was exported; export the checkpoint again")
    return file


@contextmanager
def as_written(name: str) -> Iterator[None]:
    """Turn errors about values that are missing or of the wrong type into a UserError that names the file or folder."""
    try:
        yield
    except UserError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{name} is not what export writes: {error!r}") from error
