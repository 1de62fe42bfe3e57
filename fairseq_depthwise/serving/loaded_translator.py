"""A trained model that stays in memory, and raw text through it, in any of the directions that it knows."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError, belonging
from fairseq_compat.belonging import file_digest
from fairseq_depthwise.serving.directions import languages_of
from fairseq_depthwise.serving.export_folder import CONFIG
from fairseq_depthwise.serving.exported_folder import exported_model, is_exported
from fairseq_depthwise.serving.loaded_models import trained_models
from fairseq_depthwise.serving.options import TranslatorOptions
from fairseq_depthwise.serving.search.direction import Direction, Hypothesis, Translation

__all__ = ["Hypothesis", "LoadedTranslator", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)


class LoadedTranslator:
    """One model, or several whose probabilities are averaged.

    Args:
        model: a checkpoint, several joined with ``:``, folders with a ``checkpoint_best.pt``, or a folder that was
            exported.
        data: the folder with the dictionaries; None for the one that the training recorded.
        source_lang: language of lines; None for the training's.
        target_lang: language of translations; None for the training's.
        options: how lines are translated.
        device: where.
        say: called with what takes long, and why models that are to be compiled are not.

    Raises:
        UserError: a file is no checkpoint, does not fit the data, or is not enough to say how text becomes tokens; or
            what is asked for is not possible with it. Errors call arguments as the options of the command.
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
        self.options = options or TranslatorOptions()
        load, languages = exported_model if is_exported(model) else trained_models, (source_lang, target_lang)
        self._loaded = loaded = load(model, data, languages, self.options, torch.device(device), say)
        self.files, self.data, self.device, self.models = loaded.files, loaded.data, loaded.device, loaded.models
        #: What a direction needs, of source and target language.
        self.direction = functools.cache(lambda source, target: Direction(loaded, source, target, self.options))
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
        """Return the best translation of each raw line, in order, empty where the line is; languages are of a model
        that knows several.
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
        """Return what :meth:`translate` does with scores and what else is known.

        ``constraints`` has for each line raw text that its translation must have; ``unmet_constraints`` says what is
        missing. ``nbest`` is how many of each there are at most, if not as the options say.
        """
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
