"""The provenance of a checkpoint: the order of its dictionaries, languages, and whatever else no tensor shows.

Every training records it in its checkpoints, as plain values by name: digests of dictionaries and of subword files,
languages, tokenizer with its options, and options that change what a model computes, but no tensor. Whoever uses a
checkpoint compares the record with the data and options at hand (``patches/checkpoints.py`` for fairseq's commands).
Only names on both sides are compared, so that checkpoints without a record, such as fairseq's own, are used as before.
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

#: Key of the record in a checkpoint's ``extra_state``, and in the configuration of an exported folder.
ENTRY = "belongs_to"

Record = Mapping[str, str | int | float]

#: A language may have another name now (de_DE for de), or be one of many; it is wrong only if the record has it on the
#: other side.
_OTHER_SIDE = {"source_lang": "target_lang", "target_lang": "source_lang"}

#: Options of tasks that determine which tokens are added to sentences.
_OF_TASKS = ("encoder_langtok", "decoder_langtok", "lang_tok_replacing_bos_eos", "prepend_bos")

#: Options of tasks that a resumed training may change; a checkpoint's record must agree with its own options.
_LIMITS = ("max_source_positions", "max_target_positions")

#: Options of subwords that split the text of a training at random, and affect nothing else.
_FOR_TRAINING = ("sentencepiece_enable_sampling", "sentencepiece_alpha")

#: Options of fairseq's models that no tensor's name or shape shows. Other models declare this in the metadata of their
#: options (``changes_parameters``).
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
    """Raise UserError if the record of a checkpoint, ``name``, differs from the record of ``where``, ``current``."""
    for key, trained in recorded.items():
        value = current.get(key, trained)  # a name that only the record has is not compared
        if value == trained or (key in _OTHER_SIDE and value != recorded.get(_OTHER_SIDE[key])):
            continue
        option = f"the {key.replace('_', ' ')}" if key.endswith("_dictionary") else f"--{key.replace('_', '-')}"
        difference = f"{name} was trained with {option} {trained}, and with {where} it is {value}"
        raise UserError(f"{difference}; give the value of the training")


def require_same_architecture(name: str, trained: Mapping[str, Any], options: Any) -> None:
    """Raise UserError if a training resumes with a model of another family than that of the checkpoint ``name``.

    ``trained`` are the options of its model. Presets of one family differ in options, which are compared one by one.
    """
    # fairseq's registry: the name of a preset -> the name of its model.
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    recorded, asked = architecture_of(Namespace(**trained)), architecture_of(options)
    families = [ARCH_MODEL_NAME_REGISTRY.get(arch, arch) for arch in (recorded, asked)]
    if recorded and asked and families[0] != families[1]:
        difference = f"{name} was trained with --arch {recorded}, and this command has --arch {asked}"
        raise UserError(f"{difference}; give {recorded}")


def require_resumable(name: str, recorded: Record, task: Any, cfg: Any, *, is_new: bool) -> Record:
    """Compare a checkpoint's record with the training that begins with it; return the record of that training.

    With ``is_new`` another training begins with the model: its task may have other dictionaries, such as one of labels.
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
    """Return the record in a checkpoint, or in the configuration of an exported folder; empty if there is none."""
    holder = holder.get("extra_state") or holder  # an exported folder has no extra_state
    record = holder.get(ENTRY) if isinstance(holder, dict) else None
    items = record.items() if isinstance(record, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, (str, int, float))}


def of_training(task: Any, cfg: Any) -> Record:
    """Return the record of a training with these options."""
    return {**of_task(task), **of_model(cfg.model), **of_text_in(cfg), **limits_in(options_of(task))}


def of_task(task: Any) -> Record:
    """Return a task's dictionaries, languages, and options for the tokens that it adds to sentences."""
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
    """Return a task's options: ``cfg``, or ``args`` for tasks whose options fairseq has not moved to dataclasses."""
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

    Depths are left out: tensors show them, and a model can grow.
    """
    dataclass = options_class(architecture_of(options))
    declared = getattr(dataclass, "__dataclass_fields__", dict.fromkeys(_OF_MODELS))
    retired = getattr(dataclass, "retired", {})
    values: dict[str, str | int | float] = {}
    for name, field in declared.items():
        is_recorded = getattr(field, "metadata", {}).get("changes_parameters", name in _OF_MODELS)
        if is_recorded and hasattr(options, name) and not name.endswith("_layers"):
            values[name] = _as_first_recorded(_plain(getattr(options, name)), retired.get(name, {}))
    # A model around another one, such as a linearized one, has the options of that as JSON.
    for name, field in declared.items():
        if getattr(field, "metadata", {}).get("options_of_model") and getattr(options, name, None):
            values |= of_model(Namespace(**json.loads(getattr(options, name))))
    if values.get("share_all_embeddings"):
        values.pop("share_decoder_input_output_embed", None)  # has no effect then
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
    """Return the names of tokenizer and subwords and their options, from :func:`settings_in`; for files, digests."""
    record: dict[str, str | int | float] = {}
    for kind, options in (("tokenizer", tokenizer), ("bpe", bpe)):
        for name, value in options.items():
            # Paths differ from machine to machine: the content of the file counts. Other texts are not compared.
            is_number = isinstance(value, (int, float)) and name not in _FOR_TRAINING
            if is_number or name in (kind, "bpe_separator"):
                record[name] = value
            elif isinstance(value, str) and os.path.isfile(value):
                record[name] = digest_of_file(value)
    return record


def digest_of_file(path: str) -> str:
    """Return the digest that stands for a file in a record."""
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
        # Reading a mandatory option that is missing ("???") raises an error. (missing_keys would list them by their
        # names in the whole configuration.)
        if not (OmegaConf.is_config(options) and OmegaConf.is_missing(options, name)):
            values[name] = options[name]
    choice, option = values.pop("_name", None), values.get(kind)
    # As fairseq's registry does: from a namespace the option, such as --bpe, from a configuration the _name.
    chosen_name = (option or choice) if is_namespace else (choice or option)
    return {**values, kind: chosen_name} if chosen_name else {}


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def architecture_of(options: Any) -> str | None:
    """Return the name of a model's architecture: ``_name`` in fairseq's configuration, ``arch`` in older options."""
    return getattr(options, "_name", None) or getattr(options, "arch", None)


def options_class(arch: str | None) -> Any:
    """Return the dataclass of the options of an architecture, which may be a preset; None if it has none."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else str(value)
