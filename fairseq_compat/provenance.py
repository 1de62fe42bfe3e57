"""The provenance of a checkpoint: dictionaries in their order, languages, and whatever else no tensor shows.

Every training records it in its checkpoints, as plain values by name: digests of dictionaries and of subword files,
languages, tokenizer with its options, and options that change what a model computes, but no tensor. It is compared with
what a checkpoint is used with (``patches/checkpoints.py``, and whatever else reads checkpoints). Only what both sides
name is compared, so that checkpoints without a record, such as fairseq's own, are used as before.
"""

from __future__ import annotations

import hashlib
import json
import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairseq_compat.errors import UserError

#: In a checkpoint's ``extra_state``, and in the configuration of an exported folder.
ENTRY = "belongs_to"

Record = Mapping[str, str | int | float]

#: A language may have been renamed, or be one of many; it is wrong only if the record has it on the other side.
_OTHER_SIDE = {"source_lang": "target_lang", "target_lang": "source_lang"}

#: Options of tasks that say what is put around sentences.
_OF_TASKS = ("encoder_langtok", "decoder_langtok", "lang_tok_replacing_bos_eos", "prepend_bos")

#: Options of tasks that trainings may change, but no checkpoint.
_LIMITS = ("max_source_positions", "max_target_positions")

#: Options of subwords that only affect the text of trainings.
_FOR_TRAINING = ("sentencepiece_enable_sampling", "sentencepiece_alpha")

#: Options of fairseq's models that no tensor shows. Other dataclasses declare it with ``changes_parameters``.
_OF_MODELS = {
    "activation_fn",
    "cross_self_attention",
    "decoder_attention_heads",
    "decoder_normalize_before",
    "encoder_attention_heads",
    "encoder_normalize_before",
    "no_scale_embedding",
    "no_token_positional_embeddings",
    "share_all_embeddings",
    "share_decoder_input_output_embed",
    "weight_softmax",
}


def require_same(name: str, recorded: Record, current: Record, where: str) -> None:
    """Raise UserError where the record in a checkpoint, ``name``, and what it is used with, ``where``, differ."""
    for key, trained in recorded.items():
        value = current.get(key, trained)
        if value == trained or (key in _OTHER_SIDE and value != recorded.get(_OTHER_SIDE[key])):
            continue
        option = f"the {key.replace('_', ' ')}" if key.endswith("_dictionary") else f"--{key.replace('_', '-')}"
        difference = f"{name} was trained with {option} {trained}, and with {where} it is {value}"
        raise UserError(f"{difference}; give that of the training")


def require_same_architecture(name: str, trained: Mapping[str, Any], options: Any) -> None:
    """Raise UserError where a training resumes with a model of another family than the checkpoint ``name`` has.

    ``trained`` are the options of its model. Presets of one family differ in options, which are compared one by one.
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    recorded, asked = trained.get("_name") or trained.get("arch"), architecture_of(options)
    families = [ARCH_MODEL_NAME_REGISTRY.get(arch, arch) for arch in (recorded, asked)]
    if recorded and asked and families[0] != families[1]:
        difference = f"{name} was trained with --arch {recorded}, and this command has --arch {asked}"
        raise UserError(f"{difference}; give {recorded}")


def require_resumable(name: str, recorded: Record, task: Any, cfg: Any, *, is_new: bool) -> Record:
    """Compare a checkpoint's record with the training that begins with it; return the record of that training.

    With ``is_new`` another training begins with the model: its task may have other dictionaries, such as labels.
    """
    current, data = of_training(task, cfg), data_of(task)
    require_same(name, recorded, of_model(cfg.model), "this command")
    if not is_new:
        # Limits of lengths may change.
        require_same(name, recorded, {key: value for key, value in current.items() if key not in _LIMITS}, data)
        return {**recorded, **current}
    # A dictionary of another size is another task's, such as labels; of the same size it is a mistake.
    same_size = {}
    for key, dictionary in of_dictionaries(task).items():
        if _size(dictionary) == _size(recorded.get(key, dictionary)):
            same_size[key] = dictionary
    require_same(name, recorded, same_size, data)
    return current


def _size(dictionary: object) -> str:
    """Return the second part of a dictionary's record, such as "of 64 symbols"."""
    return str(dictionary).partition(" ")[2]


def recorded_in(holder: Mapping[str, Any]) -> Record:
    """Return the record in a checkpoint, or in the configuration of an exported folder; empty where there is none."""
    holder = holder.get("extra_state") or holder
    record = holder.get(ENTRY) if isinstance(holder, dict) else None
    items = record.items() if isinstance(record, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, (str, int, float))}


def of_training(task: Any, cfg: Any) -> Record:
    """Return the record of a training with these options."""
    return {**of_task(task), **of_model(cfg.model), **of_text_in(cfg), **limits_in(options_of(task))}


def of_task(task: Any) -> Record:
    """Return a task's dictionaries, languages, and what it puts around sentences."""
    options = options_of(task)
    around = {name: _plain(getattr(options, name)) for name in _OF_TASKS if hasattr(options, name)}
    return {**of_dictionaries(task), **languages_in(options), **around}


def languages_in(options: Any) -> dict[str, str]:
    """Return the languages that a task's options name, also in checkpoints without a record."""
    return {side: getattr(options, side) for side in _OTHER_SIDE if isinstance(getattr(options, side, None), str)}


def limits_in(options: Any) -> dict[str, int]:
    """Return the longest sentences that a task's options allow."""
    return {name: getattr(options, name) for name in _LIMITS if isinstance(getattr(options, name, None), int)}


def options_of(task: Any) -> Any:
    """Return a task's options, where each kind of task keeps them."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def data_of(task: Any) -> str:
    """Return a task's folder of data, for errors."""
    return str(getattr(options_of(task), "data", "these data"))


def of_dictionaries(task: Any) -> Record:
    """Return digests of a task's dictionaries, symbols in order, and their sizes."""
    digests = {}
    for name in ("source_dictionary", "target_dictionary"):
        symbols = None
        with suppress(NotImplementedError):  # raised by tasks of fairseq that have no such dictionary
            symbols = getattr(getattr(task, name, None), "symbols", None)
        if symbols is not None:
            digest = hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogateescape")).hexdigest()
            digests[name] = f"sha256:{digest[:16]} of {len(symbols)} symbols"
    return digests


def of_model(options: Any) -> Record:
    """Return the options that change what a model computes, but perhaps no tensor.

    Depths are none of them: tensors show them, and a model can grow.
    """
    dataclass = options_class(architecture_of(options))
    declared = getattr(dataclass, "__dataclass_fields__", dict.fromkeys(_OF_MODELS))
    retired = getattr(dataclass, "retired", {})
    values: dict[str, str | int | float] = {}
    for name, field in declared.items():
        is_recorded = getattr(field, "metadata", {}).get("changes_parameters", name in _OF_MODELS)
        if is_recorded and hasattr(options, name) and not name.endswith("_layers"):
            values[name] = _as_first_recorded(_plain(getattr(options, name)), retired.get(name, {}))
    for name, field in declared.items():  # of a model around another one
        if getattr(field, "metadata", {}).get("options_of_model") and getattr(options, name, None):
            values |= of_model(Namespace(**json.loads(getattr(options, name))))
    if values.get("share_all_embeddings"):
        values.pop("share_decoder_input_output_embed", None)  # is part of it
    return values


def _as_first_recorded(value: str | int | float, retired: Mapping[Any, Any]) -> str | int | float:
    """Return a value as earlier versions recorded it, so that records of all versions can be compared."""
    current = retired.get(value, value)
    earlier_values = {new: earlier for earlier, new in retired.items()}
    result: str | int | float = earlier_values.get(current, current)
    return result


def of_text_in(cfg: Any) -> Record:
    """Return the names and options of tokenizer and subwords in fairseq's configuration."""
    return of_text(settings_in("tokenizer", cfg), settings_in("bpe", cfg))


def of_text(tokenizer: Mapping[str, Any], bpe: Mapping[str, Any]) -> Record:
    """Return the names of tokenizer and subwords, and their options, of :func:`settings_in`; of files the digests."""
    record: dict[str, str | int | float] = {}
    for kind, options in (("tokenizer", tokenizer), ("bpe", bpe)):
        for name, value in options.items():
            # Paths differ from machine to machine; the content counts.
            is_number = isinstance(value, (int, float)) and name not in _FOR_TRAINING
            if is_number or name in (kind, "bpe_separator"):
                record[name] = value
            elif isinstance(value, str) and os.path.isfile(value):
                record[name] = digest_of_file(value)
    return record


def digest_of_file(path: str) -> str:
    """Return what a record has of a file."""
    return f"sha256:{file_digest(path)[:16]}"


def settings_in(kind: str, cfg: Any) -> dict[str, Any]:
    """Return the name, under ``kind``, and the options of the ``tokenizer`` or ``bpe`` in fairseq's configuration."""
    from omegaconf import OmegaConf

    part = cfg.get(kind) if isinstance(cfg, Mapping) else getattr(cfg, kind, None)
    if isinstance(part, str) or part is None:
        return {kind: part} if part else {}
    is_namespace = isinstance(part, Namespace)
    options = vars(part) if is_namespace else part
    values = {}
    for name in options:
        # Of a part of a configuration, omegaconf lists what is missing by the names in the whole.
        if not (OmegaConf.is_config(options) and OmegaConf.is_missing(options, name)):
            values[name] = options[name]
    choice, option = values.pop("_name", None), values.get(kind)
    chosen_name = (option or choice) if is_namespace else (choice or option)  # in fairseq's order
    return {**values, kind: chosen_name} if chosen_name else {}


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def architecture_of(options: Any) -> str | None:
    """Return the name of a model's architecture, where new and old options have it."""
    return getattr(options, "_name", None) or getattr(options, "arch", None)


def options_class(arch: str | None) -> Any:
    """Return the dataclass of an architecture's options, of a preset too; None where it has none."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else str(value)
