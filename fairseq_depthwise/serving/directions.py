"""From which language into which: the task of a model, for each direction that it is asked for."""

from __future__ import annotations

import copy
import os
from argparse import Namespace

from fairseq.tasks import TASK_REGISTRY, FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_compat import UserError
from fairseq_compat.patches.data import pairs_in
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint


def first_task(checkpoint: Checkpoint, data: str, source_lang: str | None, target_lang: str | None) -> FairseqTask:
    """Return the task of a checkpoint for one direction.

    Args:
        checkpoint: of a model that translates.
        data: its folder of data.
        source_lang: None for the training's.
        target_lang: None for the training's.

    Raises:
        UserError: the training was of no translation, of another direction, or of several and none is named.
    """
    trained_with = _task_class(checkpoint)
    recorded = checkpoint.cfg.task
    if not issubclass(trained_with, TranslationTask | TranslationMultiSimpleEpochTask):
        raise UserError(
            f"{checkpoint.path} was trained with --task {recorded._name}; models of --task translation and "
            "translation_multi_simple_epoch, and of those derived from them, can translate here"
        )
    if not issubclass(trained_with, TranslationMultiSimpleEpochTask):
        trained = (getattr(recorded, "source_lang", None), getattr(recorded, "target_lang", None))
        if None in trained and os.path.isdir(data) and len(found := pairs_in(data)) == 1:
            (trained,) = found  # as the training took them from its data
        for option, given, language in zip(
            ("--source-lang", "--target-lang"), (source_lang, target_lang), trained, strict=True
        ):
            if given and language and given != language:
                direction = f"from {trained[0]} to {trained[1]}"
                raise UserError(f"{option} {given}: {checkpoint.path} was trained {direction}; leave the option out")
        return checkpoint.task(data, source_lang=source_lang or trained[0], target_lang=target_lang or trained[1])
    pairs = _pairs(recorded)
    if not (source_lang and target_lang):
        source_lang, target_lang = _only_pair(checkpoint.path, pairs, source_lang, target_lang)
    known = _languages(recorded, pairs)
    for option, language in (("--source-lang", source_lang), ("--target-lang", target_lang)):
        if known and language not in known:
            raise UserError(f"{option} {language} is none of the languages of {checkpoint.path}: {', '.join(known)}")
    return checkpoint.task(data, source_lang=source_lang, target_lang=target_lang)


def task_for(task: FairseqTask, source_lang: str, target_lang: str) -> FairseqTask:
    """Return a task like this one for another direction; models of the one are models of the other.

    Raises:
        UserError: the task has one direction, or does not know the language.
    """
    if languages_of(task) == (source_lang, target_lang):
        return task
    if not isinstance(task, TranslationMultiSimpleEpochTask):
        source, target = languages_of(task)
        raise UserError(f"the model translates from {source} to {target}, not from {source_lang} to {target_lang}")
    for option, language in (("--source-lang", source_lang), ("--target-lang", target_lang)):
        if language not in task.langs:
            raise UserError(f"{option} {language} is none of the model's languages: {', '.join(task.langs)}")
    other = copy.copy(task)
    other.args = Namespace(**{**vars(task.args), "source_lang": source_lang, "target_lang": target_lang})
    other.data_manager = copy.copy(task.data_manager)
    other.data_manager.args = other.args
    # fairseq demands that the dictionaries of all source languages are the same, and those of all target languages.
    source, target = languages_of(task)
    dictionaries = task.data_manager.dicts
    other.data_manager.dicts = {
        **dictionaries,
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


def has_language_token(task: FairseqTask) -> bool:
    """Return whether the task puts a token that names a language before every source sentence."""
    if not isinstance(task, TranslationMultiSimpleEpochTask):
        return False
    return bool(task.args.langtoks["main"][0]) and not task.args.lang_tok_replacing_bos_eos


def target_start(task: FairseqTask) -> tuple[int, list[int]]:
    """Return the decoder's first token, and those that every translation begins with.

    It is what ``inference_step`` of fairseq does. Its task of many languages says there which language is wanted.
    """
    end: int = task.target_dictionary.eos()
    if not isinstance(task, TranslationMultiSimpleEpochTask):
        return end, []
    _, named = task.args.langtoks["main"]
    if not named:
        return end, []
    token: int = task.data_manager.get_decoder_langtok(task.args.target_lang, named)
    return (token, []) if task.args.lang_tok_replacing_bos_eos else (end, [token])


def _task_class(checkpoint: Checkpoint) -> type[FairseqTask]:
    name = getattr(checkpoint.cfg.get("task"), "_name", None)
    if name not in TASK_REGISTRY:
        raise UserError(f"{checkpoint.path} was trained with --task {name}, which is not known here")
    found: type[FairseqTask] = TASK_REGISTRY[name]
    return found


def _pairs(options: object) -> list[str]:
    pairs = getattr(options, "lang_pairs", None) or []
    return pairs.split(",") if isinstance(pairs, str) else list(pairs)


def _languages(options: object, pairs: list[str]) -> list[str]:
    """Return the languages of a training; none where they are in a file."""
    if getattr(options, "lang_dict", None):
        return []
    return list(getattr(options, "langs", None) or sorted({language for pair in pairs for language in pair.split("-")}))


def _only_pair(path: str, pairs: list[str], source_lang: str | None, target_lang: str | None) -> tuple[str, str]:
    """Return the only pair of a training that has these languages, where only one is given or none."""
    wanted = (source_lang, target_lang)
    fitting = [
        (source, target)
        for source, _, target in (pair.partition("-") for pair in pairs)
        if all(given in (None, found) for given, found in zip(wanted, (source, target), strict=True))
    ]
    if len(fitting) != 1:
        raise UserError(
            f"{path} translates in {len(pairs):,} directions; choose one with --source-lang and --target-lang, as in "
            f"{' '.join(pairs[:5])}"
        )
    return fitting[0]
