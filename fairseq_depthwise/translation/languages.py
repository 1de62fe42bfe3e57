"""Source and target language: the task of a model for each direction that it is asked for."""

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
    """Return the folder of data, ``data`` or the recorded one, and the task for one direction.

    Of several places where the recorded folder may be now, the first that has the training's dictionaries is used.

    Args:
        languages: source and target language; where both are None the model must have one direction.
    """
    if data is not None and not os.path.isdir(data):
        raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
    recorded = checkpoint.cfg.get("task")
    folders = [data] if data else data_folders(getattr(recorded, "data", None), checkpoint.path)
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
    """Return the task for one direction with a folder of data."""
    recorded, (source_lang, target_lang) = checkpoint.cfg.get("task"), languages
    name = getattr(recorded, "_name", None)
    task_class = TASK_REGISTRY.get(name, object)
    if not issubclass(task_class, TranslationTask | TranslationMultiSimpleEpochTask):
        raise UserError(
            f"{checkpoint.path} was trained with --task {name}; models of --task translation and "
            "translation_multi_simple_epoch, and of those derived from them, can translate here"
        )
    trained = (getattr(recorded, "source_lang", None), getattr(recorded, "target_lang", None))
    if issubclass(task_class, TranslationMultiSimpleEpochTask):
        trained = _trained_pair(recorded, languages, checkpoint.path)
    elif None in trained and os.path.isdir(data):
        pairs_of_data = pairs_in(data)
        if len(pairs_of_data) == 1:
            (trained,) = pairs_of_data  # as the training took them from its data
    task = checkpoint.build_task(data, source_lang=trained[0] or source_lang, target_lang=trained[1] or target_lang)
    source, target = languages_of(task)
    return task_for(task, source_lang or source, target_lang or target)


def _trained_pair(recorded: Any, languages: tuple[str | None, str | None], path: str) -> tuple[str, str]:
    """Return the pair of languages, of those that a model of many was trained with, that stands for ``languages``."""
    source_lang, target_lang = languages
    names = getattr(recorded, "lang_pairs", None) or []
    names = names.split(",") if isinstance(names, str) else list(names)
    pairs: list[tuple[str, str]] = []
    for name in names:
        source, _, target = name.partition("-")
        pairs.append((source, target))
    fitting = [pair for pair in pairs if source_lang in (None, pair[0]) and target_lang in (None, pair[1])]
    if source_lang and target_lang:  # perhaps a new pair, for which any task will do
        fitting = [*fitting, *pairs, (source_lang, target_lang)][:1]
    if len(fitting) != 1:
        raise UserError(
            f"{path} translates in {len(pairs):,} directions; choose one with --source-lang and --target-lang, as in "
            f"{' '.join(names[:5])}"
        )
    return fitting[0]


def task_for(task: FairseqTask, source_lang: str, target_lang: str) -> FairseqTask:
    """Return a task like this one for another direction; models of the one are models of the other.

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


def languages_of(task: FairseqTask) -> tuple[str, str]:
    """Return source and target language."""
    options = task.args if isinstance(task, TranslationMultiSimpleEpochTask) else task.cfg
    return options.source_lang, options.target_lang


def around(task: FairseqTask) -> tuple[list[int], list[int]]:
    """Return the tokens that a task puts before every source sentence, and after it."""
    # What stands around a sentence of one word.
    word = task.source_dictionary.unk()
    dataset: Any = task.build_dataset_for_inference([torch.tensor([word, task.source_dictionary.eos()])], [2])
    tokens: list[int] = dataset.collater([dataset[0]])["net_input"]["src_tokens"][0].tolist()
    return tokens[: tokens.index(word)], tokens[tokens.index(word) + 1 :]


def target_start(task: FairseqTask) -> tuple[int, list[int]]:
    """Return the decoder's first token, and those that every translation begins with."""
    # The task gives both to its search; this one returns them.
    search: Any = SimpleNamespace(generate=lambda *batch, **arguments: arguments)
    arguments: Any = task.inference_step(search, [], {"net_input": {"src_tokens": torch.zeros(1, 1).long()}})
    start, prefix = arguments.get("bos_token"), arguments.get("prefix_tokens")
    if start is None:
        start = target_end(task)
    return start, [] if prefix is None else prefix[0].tolist()


def target_end(task: FairseqTask) -> int:
    """Return the token that ends every translation; of mBART's task it is the language."""
    dictionary = task.target_dictionary
    if isinstance(task, TranslationFromPretrainedBARTTask):
        return int(dictionary.index(f"[{task.args.target_lang}]"))
    return int(dictionary.eos())


def require_graphs(task: FairseqTask, path: str) -> None:
    """Raise UserError where graphs cannot search as a task does."""
    if target_end(task) != task.target_dictionary.eos():
        raise UserError(
            f"{path} was trained with --task translation_from_pretrained_bart, whose sentences end with their "
            "language; it can be translated with, but neither compiled nor exported"
        )
