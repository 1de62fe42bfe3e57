"""What a checkpoint belongs to: dictionaries in their order, languages, and whatever else no tensor shows.

Every training leaves a record of that in its checkpoints, as plain values by name: digests of dictionaries and of
subword files, languages, tokenizer with its options, and options that change what a model computes, but no tensor. It
is compared with what a checkpoint is used with (``patches/checkpoints.py``, and whatever else reads checkpoints). Only
what both sides name is compared, so that checkpoints without a record, fairseq's own and older ones, are used as
before.
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

#: A language of another name may be the same, or one of many; the one of the other side is not.
_OTHER_SIDE = {"source_lang": "target_lang", "target_lang": "source_lang"}

#: Options of tasks that say what is put around sentences.
_OF_TASKS = ("encoder_langtok", "decoder_langtok", "lang_tok_replacing_bos_eos", "prepend_bos")

#: Options of tasks that trainings may change, but no checkpoint.
_LIMITS = ("max_source_positions", "max_target_positions")

#: Options of subwords that only the text of trainings is split with.
_FOR_TRAINING = ("sentencepiece_enable_sampling", "sentencepiece_alpha")

#: Options of fairseq's models that no tensor shows. Other dataclasses say it with ``changes_parameters``.
_OF_MODELS = {
    "encoder_attention_heads", "decoder_attention_heads", "activation_fn", "encoder_normalize_before",
    "decoder_normalize_before", "no_scale_embedding", "no_token_positional_embeddings", "share_all_embeddings",
    "share_decoder_input_output_embed", "cross_self_attention", "weight_softmax",
}  # fmt: skip


def require_same(name: str, recorded: Record, found: Record, where: str) -> None:
    """Raise UserError where the record in a checkpoint, ``name``, and what it is used with, ``where``, differ."""
    for key, trained in recorded.items():
        given = found.get(key, trained)
        if given == trained or (key in _OTHER_SIDE and given != recorded.get(_OTHER_SIDE[key])):
            continue
        what = f"the {key.replace('_', ' ')}" if key.endswith("_dictionary") else f"--{key.replace('_', '-')}"
        raise UserError(
            f"{name} was trained with {what} {trained}, and with {where} it is {given}; give that of the training"
        )


def require_same_architecture(name: str, trained: Mapping[str, Any], options: Any) -> None:
    """Raise UserError where a training goes on with a model of another family than the checkpoint ``name`` has.

    ``trained`` are the options of its model. Presets of one family differ in options, which are compared by themselves.
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    before = trained.get("_name") or trained.get("arch")
    now = getattr(options, "_name", None) or getattr(options, "arch", None)
    if before and now and ARCH_MODEL_NAME_REGISTRY.get(before, before) != ARCH_MODEL_NAME_REGISTRY.get(now, now):
        raise UserError(f"{name} was trained with --arch {before}, and this command has --arch {now}; give {before}")


def require_resumable(name: str, recorded: Record, task: Any, cfg: Any, *, is_new: bool) -> Record:
    """Compare a checkpoint's record with the training that begins with it; return the record of that training.

    With ``is_new`` another training begins with the model: its task may have other dictionaries, such as labels.
    """
    own, data = of_training(task, cfg), data_of(task)
    require_same(name, recorded, of_model(cfg.model), "this command")
    if not is_new:
        require_same(name, recorded, {key: value for key, value in own.items() if key not in _LIMITS}, data)
        return {**recorded, **own}
    dictionaries = of_dictionaries(task)
    same_size = {key: value for key, value in dictionaries.items() if _size(value) == _size(recorded.get(key, value))}
    require_same(name, recorded, same_size, data)
    return own


def _size(dictionary: object) -> str:
    return str(dictionary).partition(" ")[2]


def recorded_in(holder: Mapping[str, Any]) -> Record:
    """Return the record in a checkpoint, or in the configuration of an exported folder; empty where there is none."""
    holder = holder.get("extra_state") or holder
    found = holder.get(ENTRY) if isinstance(holder, dict) else None
    items = found.items() if isinstance(found, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, (str, int, float))}


def of_training(task: Any, cfg: Any) -> Record:
    """Return the record of a training with these options."""
    text = of_text(settings_in("tokenizer", cfg), settings_in("bpe", cfg))
    return {**of_task(task), **of_model(cfg.model), **text, **limits_in(options_of(task))}


def of_task(task: Any) -> Record:
    """Return a task's dictionaries, languages, and what it puts around sentences."""
    options = options_of(task)
    named = {name: getattr(options, name) for name in _OF_TASKS if hasattr(options, name)}
    return {
        **of_dictionaries(task),
        **languages_in(options),
        **{name: _plain(value) for name, value in named.items()},
    }


def languages_in(options: Any) -> dict[str, str]:
    """Return the languages that a task's options name, also in checkpoints without a record."""
    languages = {side: getattr(options, side, None) for side in _OTHER_SIDE}
    return {side: language for side, language in languages.items() if isinstance(language, str)}


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
    found = {}
    for name in ("source_dictionary", "target_dictionary"):
        with suppress(NotImplementedError):  # so tasks of fairseq answer that have no such dictionary
            if (symbols := getattr(getattr(task, name, None), "symbols", None)) is not None:
                digest = hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogateescape")).hexdigest()
                found[name] = f"sha256:{digest[:16]} of {len(symbols)} symbols"
    return found


def of_model(options: Any) -> Record:
    """Return the options that change what a model computes, but perhaps no tensor.

    Depths are none of them: tensors show them, and a model can grow.
    """
    arch = getattr(options, "_name", None) or getattr(options, "arch", None)
    declared = getattr(options_class(arch), "__dataclass_fields__", dict.fromkeys(_OF_MODELS))
    names = [
        name
        for name, field in declared.items()
        if getattr(field, "metadata", {}).get("changes_parameters", name in _OF_MODELS) and not name.endswith("_layers")
    ]
    values = {name: _plain(getattr(options, name)) for name in names if hasattr(options, name)}
    for name in values:  # as earlier versions recorded them
        earlier = getattr(declared[name], "metadata", {}).get("earlier", {})
        now = earlier.get(values[name], values[name])
        values[name] = {new: old for old, new in earlier.items()}.get(now, now)
    for name, field in declared.items():  # of a model around another one
        if getattr(field, "metadata", {}).get("options_of_model") and getattr(options, name, None):
            values |= of_model(Namespace(**json.loads(getattr(options, name))))
    if values.get("share_all_embeddings"):
        values.pop("share_decoder_input_output_embed", None)  # is part of it
    return values


def of_text(tokenizer: Mapping[str, Any], bpe: Mapping[str, Any]) -> Record:
    """Return the names of tokenizer and subwords, and their options, of :func:`settings_in`; of files the digests."""
    record: dict[str, str | int | float] = {}
    for kind, options in (("tokenizer", tokenizer), ("bpe", bpe)):
        for name, value in options.items():
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

    found = cfg.get(kind) if isinstance(cfg, Mapping) else getattr(cfg, kind, None)
    if isinstance(found, str) or found is None:
        return {kind: found} if found else {}
    is_namespace = isinstance(found, Namespace)
    found = vars(found) if is_namespace else found
    # Asked one by one: of a part of a configuration, omegaconf lists what is missing by the names in the whole.
    missing = [name for name in found if OmegaConf.is_config(found) and OmegaConf.is_missing(found, name)]
    values = {name: found[name] for name in found if name not in missing}
    choice, option = values.pop("_name", None), values.get(kind)
    name = (option or choice) if is_namespace else (choice or option)  # in fairseq's order
    return {**values, kind: name} if name else {}


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def options_class(arch: str | None) -> Any:
    """Return the dataclass of an architecture's options, of a preset too; None where it has none."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else str(value)
