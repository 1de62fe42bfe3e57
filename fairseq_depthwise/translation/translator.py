"""The translator: a trained model kept in memory, which translates raw text in every direction that it knows."""

from __future__ import annotations

import functools
import logging
import reprlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairseq_compat import UserError, provenance
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.translation import checkpoint_models
from fairseq_depthwise.translation.direction import Direction, Hypothesis, Piece, Translation
from fairseq_depthwise.translation.export_formats import format_of_graphs
from fairseq_depthwise.translation.languages import known_languages, languages_of
from fairseq_depthwise.translation.loaded_models import ModelRequest
from fairseq_depthwise.translation.translation_options import BeamOptions, TextOptions, TranslatorOptions

__all__ = ["BeamOptions", "Hypothesis", "LoadedTranslator", "TextOptions", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)


class LoadedTranslator:
    """A model, or an ensemble whose probabilities are averaged.

    Errors name arguments by their options in ``translate``.

    Args:
        model: path of a checkpoint, or several joined with ``:``; of a folder with a ``checkpoint_best.pt``; or of an
            exported folder.
        data: folder with the dictionaries; by default the one recorded in training.
        source_lang: default language of lines; the one recorded in training if not given.
        target_lang: default language of translations; the one recorded in training if not given.
        options: beam search, text processing, precision.
        device: where the model runs.
        say: receives messages about slow steps, and the reason if a model cannot be compiled.
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
        # Local names, so that the function below does not hold self, and a translator is freed without delay.
        self.options = translator_options = options or TranslatorOptions()
        request = ModelRequest(model, data, source_lang, target_lang, self.options, torch.device(device), say)
        export_format = format_of_graphs(model)
        # Exported weights are opened like a checkpoint; only folders of graphs have an opener of their own.
        opener = checkpoint_models if export_format is None else export_format.load()
        self._loaded = loaded = opener.open_models(request)
        self.files, self.data, self.device, self.models = loaded.files, loaded.data, loaded.device, loaded.models
        #: Returns the :class:`Direction` from a source to a target language; each is built once.
        self.direction = functools.cache(lambda source, target: Direction(loaded, source, target, translator_options))
        self._tokens_seen = 0
        self._unknown_seen = 0
        self._has_warned = False
        # Fail now, not at the first line, if the model does not know its languages.
        self.direction(*self.languages)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language of lines, unless :meth:`translate` is given others."""
        return languages_of(self._loaded.task)

    @property
    def known_languages(self) -> list[str]:
        """The languages that a multilingual model may be given; none for a model of one direction."""
        return known_languages(self._loaded.task)

    def digests(self) -> dict[str, Any]:
        """Return digests of the models, the subword files and the dictionaries, by name.

        Stored translations are valid as long as these and the options are the same.
        """
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
        """Translate as :meth:`translate` does, and return each line's hypotheses with their details.

        Args:
            lines: raw lines.
            source_lang: language of the lines.
            target_lang: language of the translations.
            constraints: for each line, raw texts that its translation must contain.
            nbest: number of hypotheses of each line, at most the beam size.

        Raises:
            UserError: ``lines`` or ``constraints`` are not as above, ``nbest`` is out of range, or options or model do
                not go with constraints.
        """
        _require_texts("lines", lines)
        if nbest is not None and not 1 <= nbest <= self.options.beam.beam:
            raise UserError(f"nbest={nbest} is out of range; give 1 to {self.options.beam.beam}, the beam size")
        own_source, own_target = self.languages
        direction = self.direction(source_lang or own_source, target_lang or own_target)
        constraints_of_lines = [()] * len(lines) if constraints is None else constraints
        if not isinstance(constraints_of_lines, Collection) or len(constraints_of_lines) != len(lines):
            problem = f"constraints={reprlib.repr(constraints)} does not belong to {len(lines)} lines"
            raise UserError(f"{problem}; give a list of texts for each line")
        for number, texts in enumerate(constraints_of_lines):
            _require_texts(f"constraints[{number}]", texts)
        if any(constraints_of_lines):
            # Options check themselves when they are made: with constraints they refuse some others, such as sampling.
            replace(self.options, beam=replace(self.options.beam, constraints="ordered"))

        # The pieces of all lines are searched together, so that batches have similar lengths.
        encoded_lines = []
        for text, texts in zip(lines, constraints_of_lines, strict=True):
            encoded_lines.append(direction.read(text, texts))
        pieces: list[Piece] = []
        for line in encoded_lines:
            pieces += line.pieces
        if pieces:
            self._count_unknown(torch.cat([piece.tokens[:-1] for piece in pieces]))  # without ends of sentences
        direction.search_all(pieces, nbest or self.options.nbest)
        return list(map(direction.translation, encoded_lines))

    def _count_unknown(self, tokens: Tensor) -> None:
        """Warn, once, if more than a tenth of all tokens so far are not in the dictionary."""
        self._tokens_seen += len(tokens)
        self._unknown_seen += int((tokens == self._loaded.task.source_dictionary.unk()).sum())
        if 10 * self._unknown_seen > self._tokens_seen and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%d of %d tokens are <unk>; is the text tokenized and split into subwords as in training?",
                self._unknown_seen,
                self._tokens_seen,
            )


def _require_texts(name: str, texts: Any) -> None:
    """Raise UserError unless a value is a list of texts; the letters of one text would be texts, too."""
    is_list = isinstance(texts, Collection) and not isinstance(texts, (str, bytes))
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{name} is {reprlib.repr(texts)}; give a list of texts")
