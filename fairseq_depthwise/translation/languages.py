"""Set up a checkpoint's fairseq task for one translation direction, and find that direction's special tokens."""

from __future__ import annotations

import copy
import os
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_compat import UserError
from fairseq_compat.patches.data import pairs_in
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import data_folders


def recorded_task(
    checkpoint: Checkpoint, data: str | None, languages: tuple[str | None, str | None]
) -> tuple[str, FairseqTask]:
    """Return the data folder and the task for one direction.

    Without ``data``, try all places where the recorded folder may be now; take the first with the right dictionaries.

    Args:
        languages: source and target language. Either may be None if the checkpoint leaves only one choice.
    """
    if data is not None and not os.path.isdir(data):
        raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
    task_cfg = checkpoint.cfg.get("task")
    folders = [data] if data else data_folders(getattr(task_cfg, "data", None), checkpoint.path)
    # If all fail, the first error is reported: that folder is the one that the training recorded.
    errors: list[Exception] = []
    for folder in folders:
        try:
            task = _task_in(folder, checkpoint, languages)
            checkpoint.require_task(task)
            return folder, task
        except (UserError, OSError) as error:
            errors.append(error)
    raise errors[0]


def _task_in(data: str, checkpoint: Checkpoint, languages: tuple[str | None, str | None]) -> FairseqTask:
    """Return the task for one direction with a data folder."""
    task_cfg = checkpoint.cfg.get("task")
    source_lang, target_lang = languages
    name = getattr(task_cfg, "_name", None)
    task_class = TASK_REGISTRY.get(name, object)
    if not issubclass(task_class, TranslationTask | TranslationMultiSimpleEpochTask):
        raise UserError(
            f"{checkpoint.path} was trained with --task {name}; models of --task translation and "
            "translation_multi_simple_epoch, and of those derived from them, can translate here"
        )
    trained_pair = (getattr(task_cfg, "source_lang", None), getattr(task_cfg, "target_lang", None))
    if issubclass(task_class, TranslationMultiSimpleEpochTask):
        # Such a training has --lang-pairs; its source_lang and target_lang are for generation only.
        trained_pair = _trained_pair(task_cfg, languages, checkpoint.path)
    elif None in trained_pair and os.path.isdir(data):
        # Without --source-lang and --target-lang, fairseq took the only pair of the data folder.
        pairs_of_data = pairs_in(data)
        if len(pairs_of_data) == 1:
            (trained_pair,) = pairs_of_data
    trained_source, trained_target = trained_pair
    task = checkpoint.build_task(
        data, source_lang=trained_source or source_lang, target_lang=trained_target or target_lang
    )
    source, target = languages_of(task)
    return task_for(task, source_lang or source, target_lang or target)


def _trained_pair(task_cfg: Any, languages: tuple[str | None, str | None], path: str) -> tuple[str, str]:
    """Return the pair of a multilingual model with which to set up the task for ``languages``."""
    source_lang, target_lang = languages
    names = getattr(task_cfg, "lang_pairs", None) or []
    names = names.split(",") if isinstance(names, str) else list(names)
    pairs: list[tuple[str, str]] = []
    for name in names:
        source, _, target = name.partition("-")
        pairs.append((source, target))
    matching = [pair for pair in pairs if source_lang in (None, pair[0]) and target_lang in (None, pair[1])]
    if source_lang and target_lang and not matching:
        # A zero-shot direction: set up the task with any trained pair; task_for changes its direction.
        return pairs[0] if pairs else (source_lang, target_lang)
    if source_lang and target_lang:
        return matching[0]
    if len(matching) != 1:
        raise UserError(
            f"{path} translates in {len(pairs):,} directions; choose one with --source-lang and --target-lang, as in "
            f"{' '.join(names[:5])}"
        )
    return matching[0]


def languages_of(task: FairseqTask) -> tuple[str, str]:
    """Return source and target language."""
    options = task.args if isinstance(task, TranslationMultiSimpleEpochTask) else task.cfg
    return options.source_lang, options.target_lang


def known_languages(task: FairseqTask) -> list[str]:
    """Return the languages between which a multilingual model translates; none for a model of one direction."""
    return list(task.langs) if isinstance(task, TranslationMultiSimpleEpochTask) else []


def task_for(task: FairseqTask, source_lang: str, target_lang: str) -> FairseqTask:
    """Return ``task`` for another direction; a model built with either task works with both.

    Raises:
        UserError: the task does not know the languages.
    """
    if languages_of(task) == (source_lang, target_lang):
        return task
    if not isinstance(task, TranslationMultiSimpleEpochTask):
        source, target = languages_of(task)
        raise UserError(
            f"--source-lang {source_lang}, --target-lang {target_lang}: the model translates from {source} to {target}"
        )
    for option, language in (("--source-lang", source_lang), ("--target-lang", target_lang)):
        if language not in task.langs:
            raise UserError(f"{option} {language} is none of the model's languages: {', '.join(task.langs)}")
    # A copy that shares everything but what depends on the direction.
    other = copy.copy(task)
    other.args = Namespace(**{**vars(task.args), "source_lang": source_lang, "target_lang": target_lang})
    other.data_manager = copy.copy(task.data_manager)
    other.data_manager.args = other.args
    # fairseq demands that the dictionaries of all source languages are the same, and those of all target languages.
    source, target = languages_of(task)
    other.data_manager.dicts = {
        **task.data_manager.dicts,
        source_lang: task.data_manager.get_source_dictionary(source),
        target_lang: task.data_manager.get_target_dictionary(target),
    }
    other.lang_pairs = [f"{source_lang}-{target_lang}"]
    other.source_langs, other.target_langs = [source_lang], [target_lang]
    return other


def source_affixes(task: FairseqTask) -> tuple[list[int], list[int]]:
    """Return the tokens that a task adds before and after each source sentence."""
    # Pass a sentence of one word through the task's dataset, and see what was added on each side.
    word = task.source_dictionary.unk()
    dataset: Any = task.build_dataset_for_inference([torch.tensor([word, task.source_dictionary.eos()])], [2])
    tokens: list[int] = dataset.collater([dataset[0]])["net_input"]["src_tokens"][0].tolist()
    return tokens[: tokens.index(word)], tokens[tokens.index(word) + 1 :]


def target_start(task: FairseqTask) -> tuple[int, list[int]]:
    """Return the decoder's first token, and those that every translation begins with."""
    # The task passes both to generator.generate(): give it a fake generator that returns its keyword arguments.
    generator: Any = SimpleNamespace(generate=lambda *args, **kwargs: kwargs)
    arguments: Any = task.inference_step(generator, [], {"net_input": {"src_tokens": torch.zeros(1, 1).long()}})
    start, prefix = arguments.get("bos_token"), arguments.get("prefix_tokens")
    if start is None:
        start = target_end(task)
    return start, [] if prefix is None else prefix[0].tolist()


def target_end(task: FairseqTask) -> int:
    """Return the token that ends every translation: ``</s>``, or the target language token for mBART."""
    dictionary = task.target_dictionary
    if isinstance(task, TranslationFromPretrainedBARTTask):
        return int(dictionary.index(f"[{task.args.target_lang}]"))
    return int(dictionary.eos())


def require_exportable(task: FairseqTask, path: str) -> None:
    """Raise UserError if models of the task can be neither compiled nor exported: mBART's, for their end token."""
    if target_end(task) != task.target_dictionary.eos():
        raise UserError(
            f"{path} was trained with --task translation_from_pretrained_bart, whose sentences end with their "
            "language; it can be translated with, but neither compiled nor exported"
        )
