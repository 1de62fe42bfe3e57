"""Translates raw text with a trained model that stays in memory, in any direction that it knows."""

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
from fairseq_depthwise.translation.direction import Direction, Hypothesis, Piece, Translation
from fairseq_depthwise.translation.export_formats import format_of_graphs
from fairseq_depthwise.translation.languages import languages_of
from fairseq_depthwise.translation.loaded_models import ModelRequest
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions

__all__ = ["BeamOptions", "Hypothesis", "LoadedTranslator", "TextOptions", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)


class LoadedTranslator:
    """One model, or several whose probabilities are averaged; errors name arguments like the options of ``translate``.

    Args:
        model: a checkpoint, several joined with ``:``, folders with a ``checkpoint_best.pt``, or an exported folder.
        data: the folder with the dictionaries; None for the one that the training recorded.
        source_lang: language of lines; None for the training's.
        target_lang: language of translations; None for the training's.
        options: how lines are translated.
        device: where the models compute.
        say: called with messages about what takes long, and why models could not be compiled.
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
        # Exported weights are opened like a checkpoint; only folders of graphs have an opener of their own.
        opener = checkpoint_models if export_format is None else export_format.load()
        self._loaded = loaded = opener.open_models(request)
        self.files, self.data, self.device, self.models = loaded.files, loaded.data, loaded.device, loaded.models
        #: Returns the :class:`Direction` for a source and a target language.
        self.direction = functools.cache(lambda source, target: Direction(loaded, source, target, translator_options))
        self._seen: Counter[str] = Counter()
        # Raises errors of the default direction now, not at the first line.
        self.direction(*self.languages)

    @property
    def languages(self) -> tuple[str, str]:
        """The default source and target language of :meth:`translate`."""
        return languages_of(self._loaded.task)

    def digests(self) -> dict[str, Any]:
        """Return digests, by name, of what translations depend on besides options."""
        files = enumerate(self._loaded.identified_by, start=1)
        models = {f"model {number}": file_digest(path) for number, path in files}
        text = provenance.of_text(self._loaded.text.tokenizer, self._loaded.text.bpe)
        return {**models, **text, **provenance.of_dictionaries(self._loaded.task)}

    def translate(
        self, lines: Sequence[str], *, source_lang: str | None = None, target_lang: str | None = None
    ) -> list[str]:
        """Return the best translation of each raw line, in order; that of an empty line is empty.

        Raises:
            UserError: ``lines`` is a single text.
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
        """Return what :meth:`translate` does, with all details; ``constraints`` are raw texts for each line.

        Raises:
            UserError: ``lines`` is a single text, or options or model do not go with constraints.
        """
        if isinstance(lines, (str, bytes)):  # its letters would be lines
            raise UserError(f"{lines[:60]!r} is a text; give a list of lines, such as [text]")
        if nbest is not None and nbest < 1:
            raise UserError(f"nbest={nbest} is no number of translations; give 1 or more")
        own_source, own_target = self.languages
        direction = self.direction(source_lang or own_source, target_lang or own_target)
        constraints_of_lines = [()] * len(lines) if constraints is None else constraints
        for number, texts in enumerate(constraints_of_lines):
            if isinstance(texts, str):  # its letters would be constraints
                raise UserError(f"constraints[{number}] is the text {texts!r}; give a list of texts")
        if any(constraints_of_lines):
            # Making such options refuses what does not go with constraints, such as sampling.
            replace(self.options, beam=replace(self.options.beam, constraints="ordered"))

        # The pieces of all lines are searched together, so that batches have similar lengths.
        encoded_lines = []
        for text, texts in zip(lines, constraints_of_lines, strict=True):
            encoded_lines.append(direction.read(text, texts))
        pieces: list[Piece] = []
        for line in encoded_lines:
            pieces += line.pieces
        if pieces:
            # Ends of sentences are always known, so they do not count.
            self._count_unknown(torch.cat([piece.tokens[:-1] for piece in pieces]))
        direction.search_all(pieces, nbest or self.options.nbest)
        return list(map(direction.translation, encoded_lines))

    def _count_unknown(self, tokens: Tensor) -> None:
        """Warn once if more than a tenth of the text so far is not in the dictionary."""
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
