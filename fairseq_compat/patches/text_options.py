"""Patches that take the options of tokenizer and subwords from the folder of data.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from omegaconf import MISSING, OmegaConf, open_dict

from fairseq_compat.errors import UserError
from fairseq_compat.patching import as_configuration, patch
from fairseq_compat.provenance import file_digest, settings_in
from fairseq_compat.text_record import NAME, TextRecord, read_text_record


@patch("fairseq_cli.train", "fairseq_cli.generate", "fairseq_cli.interactive", function="main")
def take_text_options_from_data(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Each command needs the tokenizer and subwords of the data as options; wrong ones give the model unknown tokens.

    Here they come from ``text.json`` in the folder of data, if it has one; options that contradict it are refused.
    """
    cfg = as_configuration(cfg)
    _take_text_options(cfg)
    return original(cfg, *args, **kwargs)


def _take_text_options(cfg: Any) -> None:
    """Set the options of tokenizer and subwords that the folders of data record.

    Raises:
        UserError: the folders differ, or an option on the command line contradicts them.
    """
    from fairseq import utils
    from fairseq.data.encoders import TOKENIZER_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    # What is missing is named by the command itself.
    data = None if OmegaConf.is_missing(cfg, "task") else getattr(cfg.task, "data", None)
    folders = str(data).split(os.pathsep) if data else []
    records = {}
    for folder in folders:
        record = read_text_record(folder)
        if record is not None:
            records[folder] = record
    if not records:
        return
    (place, record), *others = records.items()
    for other, other_record in others:
        _require_same_text(place, record, other, other_record)

    utils.import_user_module(cfg.common)  # registers tasks and tokenizers
    # Other tasks than translation mask words of --bpe, and the like.
    task_options = getattr(TASK_DATACLASS_REGISTRY.get(cfg.task._name), "__dataclass_fields__", cfg.task)
    if "source_lang" not in task_options:
        return
    if record.tokenizer and record.tokenizer["tokenizer"] not in TOKENIZER_REGISTRY:
        return  # the plugin's, and fairseq was started without the plugin
    for side in ("source_lang", "target_lang"):
        language = getattr(cfg.task, side, None)
        if language is not None and language not in record.languages:
            raise UserError(
                f"--{side.replace('_', '-')} {language}: {os.path.join(place, NAME)} has the languages "
                f"{', '.join(record.languages)}; give one of these, or leave the option out"
            )
    # fairseq's tokenizer takes both from these options of the task, where they are given.
    languages = {}
    for side, language in zip(("source_lang", "target_lang"), record.languages, strict=False):
        languages[side] = getattr(cfg.task, side, None) or language
    _set_part(cfg, "tokenizer", record.tokenizer, {}, place, languages)
    _set_part(cfg, "bpe", record.bpe, record.files, place, {})
    _set_validation_text(cfg.task, record, languages)


def _set_validation_text(task: Any, record: TextRecord, languages: Mapping[str, str]) -> None:
    """Let ``--eval-bleu`` compare raw text, unless its own options say what it compares.

    By default it would compare tokens, subwords among them.
    """
    is_decided = getattr(task, "eval_bleu_detok", "space") != "space" or getattr(task, "eval_tokenized_bleu", False)
    if not getattr(task, "eval_bleu", False) or is_decided:
        return
    with open_dict(task) if OmegaConf.is_config(task) else nullcontext():
        if record.bpe and getattr(task, "eval_bleu_remove_bpe", None) is None:
            task.eval_bleu_remove_bpe = record.bpe["bpe"]
        if record.tokenizer:
            task.eval_bleu_detok = record.tokenizer["tokenizer"]
            task.eval_bleu_detok_args = json.dumps(languages)


def _require_same_text(first: str, record: TextRecord, other: str, other_record: TextRecord) -> None:
    """Raise UserError unless two folders record the same, wherever their files are."""
    for kind in ("tokenizer", "bpe"):
        mine, theirs = getattr(record, kind), getattr(other_record, kind)
        if {**mine, **record.files} != {**theirs, **other_record.files}:
            raise UserError(f"{first} and {other} were made with another --{kind}; prepare one like the other")


def _set_part(
    cfg: Any,
    kind: str,
    recorded: Mapping[str, Any],
    files: Mapping[str, str],
    place: str,
    languages: Mapping[str, str],
) -> None:
    """Set ``cfg.tokenizer`` or ``cfg.bpe`` to what a folder records, unless what it has contradicts that."""
    current = settings_in(kind, cfg)
    if current:
        _require_agreement(kind, current, recorded, files, os.path.join(place, NAME))
    if recorded:
        options = {**current, **languages, **recorded}
        options["_name"] = options.pop(kind)
        with open_dict(cfg):
            cfg[kind] = OmegaConf.create(options)


def _require_agreement(
    kind: str, current: Mapping[str, Any], recorded: Mapping[str, Any], files: Mapping[str, str], record: str
) -> None:
    """Raise UserError where options of the command line are others than the recorded ones; defaults are not."""
    name, recorded_name = current[kind], recorded.get(kind, "none")
    if name != recorded_name:
        raise UserError(f"--{kind} {name}: {record} has {recorded_name}; leave the option out")
    from fairseq.registry import REGISTRIES

    dataclass = REGISTRIES[kind]["dataclass_registry"].get(name)
    defaults = {field.name: field.default for field in dataclasses.fields(dataclass)} if dataclass else {}
    for option, recorded_value in recorded.items():
        value = current.get(option)
        if option in files and value not in (None, "", MISSING):
            is_same = os.path.isfile(value) and file_digest(value) == files[option]
        else:
            is_same = value in (None, "", MISSING, recorded_value, defaults.get(option))
        if not is_same:
            flag = option.replace("_", "-")
            raise UserError(f"--{flag} {value}: {record} has {recorded_value}; leave the option out")
