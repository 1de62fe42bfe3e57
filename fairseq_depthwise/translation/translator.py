"""A trained model that stays in memory, and raw text through it, in any of the directions that it knows."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq import utils
from torch import Tensor

from fairseq_compat import UserError, belonging
from fairseq_compat.belonging import file_digest
from fairseq_depthwise.backends.compiled import compiled_graphs
from fairseq_depthwise.backends.graph_cache import any_kept
from fairseq_depthwise.backends.graph_search import Graphs
from fairseq_depthwise.backends.onnx_files import int8_graphs
from fairseq_depthwise.backends.traced import refuse_unless_ours
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.checkpoints.weights_folder import CONFIG
from fairseq_depthwise.translation.beam_search import BeamSearch
from fairseq_depthwise.translation.direction import Direction, Hypothesis, LoadedModels, Translation
from fairseq_depthwise.translation.graph_folder import exported_model, is_exported
from fairseq_depthwise.translation.languages import around, languages_of, recorded_task, require_graphs
from fairseq_depthwise.translation.text_codec import settings_for
from fairseq_depthwise.translation.translation_options import TranslatorOptions

__all__ = ["Hypothesis", "LoadedTranslator", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LoadedTranslator:
    """One model, or several whose probabilities are averaged; errors call arguments as the options of ``translate``.

    Args:
        model: a checkpoint, several joined with ``:``, folders with a ``checkpoint_best.pt``, or a folder that was
            exported.
        data: the folder with the dictionaries; None for the one that the training recorded.
        source_lang: language of lines; None for the training's.
        target_lang: language of translations; None for the training's.
        options: how lines are translated.
        device: where.
        say: called with what takes long, and why models that are to be compiled are not.
    """

    def __init__(
        self,
        model: str,
        *,
        data: str | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        options: TranslatorOptions | None = None,
        device: torch.device | str = "cpu",
        say: Callable[[str], None] = log.info,
    ) -> None:
        self.options = chosen = options or TranslatorOptions()
        load, languages = exported_model if is_exported(model) else trained_models, (source_lang, target_lang)
        self._loaded = loaded = load(model, data, languages, self.options, torch.device(device), say)
        self.files, self.data, self.device, self.models = loaded.files, loaded.data, loaded.device, loaded.models
        #: What a direction needs, of source and target language.
        self.direction = functools.cache(lambda source, target: Direction(loaded, source, target, chosen))
        self._seen: Counter[str] = Counter()
        self.direction(*self.languages)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language where :meth:`translate` is given none."""
        return languages_of(self._loaded.task)

    def digests(self) -> dict[str, Any]:
        """Return digests of what translations depend on besides options, by name."""
        files = [os.path.join(path, CONFIG) if is_exported(path) else path for path in self.files]
        found = {f"model {number}": file_digest(path) for number, path in enumerate(files, start=1)}
        text = self._loaded.text
        return {**found, **belonging.of_text(text.tokenizer, text.bpe), **belonging.of_dictionaries(self._loaded.task)}

    def translate(
        self, lines: Sequence[str], *, source_lang: str | None = None, target_lang: str | None = None
    ) -> list[str]:
        """Return the best translation of each raw line, in order; an empty line's is empty.

        Raises:
            UserError: ``lines`` is one text.
        """
        translations = self.translations(lines, source_lang=source_lang, target_lang=target_lang)
        return [translation.text for translation in translations]

    def translations(
        self,
        lines: Sequence[str],
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        nbest: int | None = None,
    ) -> list[Translation]:
        """Return what :meth:`translate` does with all that is known; ``constraints`` has raw texts for each line."""
        if isinstance(lines, (str, bytes)):  # whose letters would be lines
            raise UserError(f"{lines[:60]!r} is a text; give a list of lines, such as [text]")
        if nbest is not None and nbest < 1:
            raise UserError(f"nbest={nbest} is no number of translations; give 1 or more")
        own_source, own_target = self.languages
        direction = self.direction(source_lang or own_source, target_lang or own_target)
        wanted = [()] * len(lines) if constraints is None else constraints
        for number, texts in enumerate(wanted):
            if isinstance(texts, str):  # whose letters would be constraints
                raise UserError(f"constraints[{number}] is the text {texts!r}; give a list of texts")
        read = [direction.read(line, texts) for line, texts in zip(lines, wanted, strict=True)]
        pieces = [piece for line in read for piece in line.pieces]
        self._count_unknown(torch.cat([piece.tokens[:-1] for piece in pieces]) if pieces else torch.empty(0))
        direction.search_all(pieces, nbest or self.options.nbest)
        return list(map(direction.translation, read))

    def _count_unknown(self, tokens: Tensor) -> None:
        """Warn, once, where more than a tenth of the text so far is not in the dictionary."""
        seen, unknown = self._seen, self._loaded.task.source_dictionary.unk()
        seen["tokens"] += len(tokens)
        seen["unknown"] += int((tokens == unknown).sum())
        if 10 * seen["unknown"] > seen["tokens"] and not seen["warnings"]:
            seen["warnings"] += 1
            log.warning(
                "%d of %d tokens are <unk>; is the text tokenized and split into subwords as in training?",
                seen["unknown"], seen["tokens"],
            )  # fmt: skip


def trained_models(
    model: str, data: str | None, languages: tuple[str | None, str | None], options: TranslatorOptions,
    device: torch.device, say: Callable[[str], None],
) -> LoadedModels:  # fmt: skip
    """Return one checkpoint, or several whose probabilities are averaged; arguments as of ``LoadedTranslator``."""
    files = checkpoint_files(model)
    first, *others = map(Checkpoint.open, files)
    first.require_family()
    data, task = recorded_task(first, data, languages)
    text = settings_for(
        options.text, first.cfg, task.source_dictionary, path=first.path, data=data, recorded=first.provenance
    )
    for other in others:
        text.require(other.path, other.provenance)
        for kind in ("tokenizer", "bpe"):
            said = options.text.tokenized or getattr(options.text, kind) or getattr(text, kind)
            if kind in other.provenance and not said:
                raise UserError(
                    f"{other.path} was trained with --{kind} {other.provenance[kind]}, and {first.path} names none; "
                    f"give --{kind}, or --tokenized"
                )
    dtype = _TYPES.get(options.precision, torch.float32)
    models: list[Any] = [checkpoint.build_model(task).to(device, dtype) for checkpoint in (first, *others)]
    search = BeamSearch(task, models, options.beam, device)  # makes them ready
    if search.refines:
        _require_one_hypothesis(first.path, options)
    graphs = _graphs(models, task, ":".join(files), options, device, say)
    positions = utils.resolve_max_positions(task.max_positions(), *(one.max_positions() for one in models))
    longest: int = positions[0] if isinstance(positions, tuple | list) else positions
    return LoadedModels(
        files,
        data,
        device,
        task,
        text,
        lambda task: BeamSearch(task, models, options.beam, device, graphs),
        longest - len(around(task)[0]),
        models,
    )


def _require_one_hypothesis(path: str, options: TranslatorOptions) -> None:
    """Raise UserError where options ask for what only a search word by word has."""
    for name, is_given in (
        ("--sampling", options.beam.sampling),
        ("--constraints", options.beam.constraints is not None),
        ("--nbest", options.nbest > 1),
        ("--print-alignment", options.alignment is not None),
    ):
        if is_given:
            raise UserError(f"{name} is for models that translate word by word, and {path} refines whole translations")


def _graphs(
    models: list[Any], task: Any, path: str, options: TranslatorOptions, device: torch.device,
    say: Callable[[str], None],
) -> Graphs | None:  # fmt: skip
    """Return graphs where options ask for them, and without a word those that have been compiled before.

    Models that cannot be compiled translate as they are.
    """
    int8 = options.precision == "int8"
    asked = int8 or options.compile
    before = options.compile is None and device.type == "cpu" and not options.beam.sampling and any_kept("compiled")
    if not (asked or before):
        return None
    try:
        require_graphs(task, path)
        for model in models:
            refuse_unless_ours(path, type(model))
        if device.type != "cpu":
            raise UserError(f"{'--int8' if int8 else '--compile'} is for CPUs, and a GPU is in use; add --cpu")
        if int8:
            return int8_graphs(models, path, say)
        return compiled_graphs(models, path, say, anew=bool(asked))
    except UserError as error:
        if int8:
            raise
        if asked:
            say(f"not compiled, and slower: {error}")
        return None
