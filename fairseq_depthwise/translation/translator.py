"""A trained model that stays in memory, and raw text through it, in any of the directions that it knows."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError, provenance
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.translation import checkpoint_models
from fairseq_depthwise.translation.direction import Direction, Hypothesis, Translation
from fairseq_depthwise.translation.export_formats import format_of_graphs
from fairseq_depthwise.translation.languages import known_languages, languages_of
from fairseq_depthwise.translation.loaded_models import ModelRequest
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions

__all__ = ["BeamOptions", "Hypothesis", "LoadedTranslator", "TextOptions", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)


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
        self.options = translator_options = options or TranslatorOptions()
        request = ModelRequest(model, data, source_lang, target_lang, self.options, torch.device(device), say)
        export_format = format_of_graphs(model)
        opener = checkpoint_models if export_format is None else export_format.load()
        self._loaded = loaded = opener.open_models(request)
        self.files, self.data, self.device, self.models = loaded.files, loaded.data, loaded.device, loaded.models
        #: Returns what a direction needs, given source and target language.
        self.direction = functools.cache(lambda source, target: Direction(loaded, source, target, translator_options))
        self._seen: Counter[str] = Counter()
        self.direction(*self.languages)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language where :meth:`translate` is given none."""
        return languages_of(self._loaded.task)

    @property
    def known_languages(self) -> list[str]:
        """The languages that a multilingual model may be given; none for a model of one direction."""
        return known_languages(self._loaded.task)

    def digests(self) -> dict[str, Any]:
        """Return digests of what translations depend on besides options, by name."""
        files = enumerate(self._loaded.identified_by, start=1)
        models = {f"model {number}": file_digest(path) for number, path in files}
        text = provenance.of_text(self._loaded.text.tokenizer, self._loaded.text.bpe)
        return {**models, **text, **provenance.of_dictionaries(self._loaded.task)}

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
        """Return what :meth:`translate` does with all that is known; ``constraints`` has raw texts for each line.

        Raises:
            UserError: ``lines`` is one text, or the options or the model do not go with constraints.
        """
        if isinstance(lines, (str, bytes)):  # whose letters would be lines
            raise UserError(f"{lines[:60]!r} is a text; give a list of lines, such as [text]")
        if nbest is not None and nbest < 1:
            raise UserError(f"nbest={nbest} is no number of translations; give 1 or more")
        own_source, own_target = self.languages
        direction = self.direction(source_lang or own_source, target_lang or own_target)
        constraints_of_lines = [()] * len(lines) if constraints is None else constraints
        for number, texts in enumerate(constraints_of_lines):
            if isinstance(texts, str):  # whose letters would be constraints
                raise UserError(f"constraints[{number}] is the text {texts!r}; give a list of texts")
        if any(constraints_of_lines):
            # Options with constraints refuse what does not go with them, such as sampling.
            replace(self.options, beam=replace(self.options.beam, constraints="ordered"))

        encoded_lines = [direction.read(line, texts) for line, texts in zip(lines, constraints_of_lines, strict=True)]
        pieces = [piece for line in encoded_lines for piece in line.pieces]
        if pieces:
            self._count_unknown(torch.cat([piece.tokens[:-1] for piece in pieces]))
        direction.search_all(pieces, nbest or self.options.nbest)
        return list(map(direction.translation, encoded_lines))

    def _count_unknown(self, tokens: Tensor) -> None:
        """Warn, once, where more than a tenth of the text so far is not in the dictionary."""
        seen, unknown = self._seen, self._loaded.task.source_dictionary.unk()
        seen["tokens"] += len(tokens)
        seen["unknown"] += int((tokens == unknown).sum())
        if 10 * seen["unknown"] > seen["tokens"] and not seen["warnings"]:
            seen["warnings"] += 1
            log.warning(
                "%d of %d tokens are <unk>; is the text tokenized and split into subwords as in training?",
                seen["unknown"],
                seen["tokens"],
            )
