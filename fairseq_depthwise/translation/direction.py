"""Lines of one direction: cut into pieces, searched for in batches, and put together again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_depthwise.translation import long_lines
from fairseq_depthwise.translation.alignment import hard_alignment, soft_alignment, words_of
from fairseq_depthwise.translation.constraints import contains
from fairseq_depthwise.translation.languages import task_for
from fairseq_depthwise.translation.loaded_models import LoadedModels
from fairseq_depthwise.translation.text_codec import TextCodec
from fairseq_depthwise.translation.translation_options import TranslatorOptions


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    Its score is fairseq's: the logarithm of its probability to base 2, divided by its length to the power of the length
    penalty; of a line in pieces the mean.
    """

    text: str
    score: float
    tokens: tuple[str, ...] | None = None  # also ends of sentences and those that name a language
    token_scores: tuple[float, ...] | None = None  # their log-probabilities to base 2
    words: tuple[str, ...] | None = None  # with an alignment, of the tokenized text, before it is split into subwords
    alignment: tuple[tuple[int, int], ...] | None = None  # numbers of a source word and a word, from 0
    attention: tuple[tuple[float, ...], ...] | None = None  # for the soft one, of each word to each source word


@dataclass(frozen=True)
class Translation:
    """A translated line."""

    source: str
    hypotheses: tuple[Hypothesis, ...]  # the best first; of an empty line one that is empty
    pieces: int  # in which it was translated; 0 for an empty line
    cut_off: bool  # whether the best hypothesis ends where hypotheses must end
    source_words: tuple[str, ...] | None = None  # with an alignment
    unmet_constraints: Mapping[str, str] = field(default_factory=dict)  # of the best hypothesis -> why

    @property
    def text(self) -> str:
        """The best."""
        return self.hypotheses[0].text


@dataclass
class Piece:
    """What is translated at once: a line, unless it is too long."""

    place: range  # of its tokens among those of the line
    tokens: Tensor  # with an end of sentence (T)
    constraints: list[Tensor] = field(default_factory=list)  # tokens that the translation must have
    #: fairseq's, after the search; with ``cross_attention`` (T x S, without ends) for alignments.
    hypotheses: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Line:
    """A line while it is translated."""

    text: str
    symbols: list[str]  # its tokens
    pieces: list[Piece]  # none where it is empty
    #: Tokens of each, None if no translation can have them, and why a translation may lack it.
    constraints: dict[str, tuple[list[int] | None, str]] = field(default_factory=dict)


class Direction:
    """One direction of loaded models."""

    def __init__(self, loaded: LoadedModels, source_lang: str, target_lang: str, options: TranslatorOptions) -> None:
        self.task = task_for(loaded.task, source_lang, target_lang)
        self.search: Any = loaded.search(self.task)
        self.codec = TextCodec(loaded.text, source_lang, target_lang)
        # For constraints: the target's tokenizer and subwords for text to tokens.
        self._target_codec = TextCodec(loaded.text, target_lang, target_lang)
        self._target_lang, self._subwords, self._options = target_lang, loaded.text.bpe.get("bpe"), options
        self._longest, self._around = loaded.longest, loaded.around

    def read(self, text: str, constraints: Sequence[str]) -> Line:
        """Return a line's pieces, and what their translations must have."""
        encoded = self.codec.encode(text)
        symbols = encoded.split()
        tokens = self.task.source_dictionary.encode_line(encoded, add_if_not_exist=False).long()
        places = self._places(symbols)
        line = Line(text, symbols, [Piece(at, torch.cat([tokens[at.start : at.stop], tokens[-1:]])) for at in places])
        if wanted := [constraint for constraint in constraints if constraint.strip()]:
            self._constrain(line, wanted)
        return line

    def _places(self, symbols: Sequence[str]) -> list[range]:
        if not symbols:
            return []
        given = self._options.max_line_tokens
        limit = min(given or self._longest, self._longest - 1)
        if len(symbols) <= limit:
            return [range(len(symbols))]
        # Half as many as a hypothesis may have, so that its translation is not cut off.
        return long_lines.cut(symbols, max(1, limit if given else min(limit, self.search.limits.max_length // 2)))

    def _constrain(self, line: Line, constraints: Sequence[str]) -> None:
        """Add those constraints to a line that can be searched for, and of all why its translation may lack them."""
        dictionary = self.task.target_dictionary
        excluded = {dictionary.pad(), dictionary.unk(), *self.search.hidden}
        possible = []
        for constraint in constraints:
            encoded = self._target_codec.encode(constraint)
            tokens = dictionary.encode_line(encoded, add_if_not_exist=False, append_eos=False).long()
            pairs = zip(encoded.split(), tokens.tolist(), strict=True)
            if unknown := [symbol for symbol, token in pairs if token in excluded]:
                line.constraints[constraint] = (None, f"{' '.join(unknown)} is not in the target dictionary")
            else:
                possible.append((constraint, tokens))
        needed = sum(len(tokens) for _, tokens in possible)
        capacity = self.search.limits.max_length - len(self.search.limits.prefix)
        if len(line.pieces) > 1:
            why = f"the line is translated in {len(line.pieces)} pieces, and nothing says in which it belongs"
        elif not line.pieces:
            why = "the line is empty"
        elif needed > capacity:
            why = f"the line's constraints have {needed} tokens, and a translation has {capacity} at most"
        else:
            why = "the search came to no translation with all constraints of the line; a larger beam may"
            line.pieces[0].constraints = [tokens for _, tokens in possible if len(tokens)]
        line.constraints |= {constraint: (tokens.tolist(), why) for constraint, tokens in possible}

    def search_all(self, pieces: Sequence[Piece], nbest: int) -> None:
        """Find so many hypotheses of every piece; first with constraints, then without them where there are none."""
        for constrained in (True, False):
            left = [piece for piece in pieces if not piece.hypotheses and (piece.constraints or not constrained)]
            for batch, members in self._batches(left):
                given = [[piece.constraints for piece in members]] if constrained else []
                for piece, found in zip(members, self.search.hypotheses(batch, *given), strict=True):
                    piece.hypotheses = found[:nbest]
                if self._options.alignment:
                    self._add_attention(batch, members)

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[tuple[dict[str, Any], list[Piece]]]:
        """Yield batches, as a data set makes them, and the pieces in them in order."""
        if not pieces:
            return
        tokens = [piece.tokens for piece in pieces]
        if self._around is not None:
            before, after = (torch.tensor(some).long() for some in self._around)
            tokens = [torch.cat([before, of_piece[:-1], after]) for of_piece in tokens]
        lengths = list(map(len, tokens))
        dataset: Any = self.task.build_dataset_for_inference(tokens, lengths)
        limit = self._options.max_tokens or (None if self._options.batch_size else 4096)
        batches = dataset.batch_by_size(
            np.argsort(np.array(lengths), kind="stable"),
            # A longer piece makes a larger batch, rather than an error. 1 is for the token that names a language.
            max_tokens=None if limit is None else max(limit, max(lengths) + 1),
            max_sentences=self._options.batch_size,
        )
        for numbers in batches:
            batch = dataset.collater([dataset[number] for number in numbers])
            yield batch, [pieces[number] for number in batch["id"].tolist()]

    def _add_attention(self, batch: dict[str, Any], members: Sequence[Piece]) -> None:
        hypotheses = [[hypothesis["tokens"] for hypothesis in piece.hypotheses] for piece in members]
        width = batch["net_input"]["src_tokens"].size(1)
        for piece, attention in zip(members, self.search.attention(batch, hypotheses), strict=True):
            # Padding and the token of a language come before a piece, and its end is last.
            columns = slice(width - len(piece.tokens), width - 1)
            for hypothesis, weights in zip(piece.hypotheses, attention, strict=True):
                hypothesis["cross_attention"] = weights[:, columns]

    def translation(self, line: Line) -> Translation:
        """Return a line's translation of its pieces' hypotheses."""
        # The best of every piece, the second of every piece ..., as many as all pieces have.
        by_rank = [*zip(*(piece.hypotheses for piece in line.pieces), strict=False)] or [()]
        best = [output["tokens"].tolist() for output in by_rank[0]]
        unmet = {
            constraint: why
            for constraint, (wanted, why) in line.constraints.items()
            if wanted is None or not any(contains(tokens, wanted) for tokens in best)
        }
        hypotheses = tuple(self._hypothesis(line, outputs) for outputs in by_rank)
        cut_off = any(len(tokens) > self.search.limits.max_length for tokens in best)
        words = tuple(words_of(line.symbols, self._subwords)[1]) if self._options.alignment else None
        return Translation(line.text, hypotheses, len(line.pieces), cut_off, words, unmet)

    def _hypothesis(self, line: Line, outputs: Sequence[dict[str, Any]]) -> Hypothesis:
        texts = [self.codec.decode(self.search.text(output["tokens"])) for output in outputs]
        scores = [float(output["score"]) / math.log(2) for output in outputs]
        more: dict[str, Any] = {}
        if self._options.token_scores:
            dictionary = self.task.target_dictionary
            more["tokens"] = tuple(dictionary[token] for output in outputs for token in output["tokens"].tolist())
            more["token_scores"] = tuple(
                score / math.log(2) for output in outputs for score in output["positional_scores"].tolist()
            )
        if self._options.alignment:
            more |= self._aligned(line, outputs)
        score = sum(scores) / len(scores) if scores else 0.0
        return Hypothesis(long_lines.joined(texts, self._target_lang), score, **more)

    def _aligned(self, line: Line, outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the words of a hypothesis and their alignment with those of the line."""
        source, source_words = words_of(line.symbols, self._subwords)
        words: list[str] = []
        found: list[tuple[Any, ...]] = []
        for piece, output in zip(line.pieces, outputs, strict=True):
            tokens = output["tokens"].tolist()
            seen = [place for place, token in enumerate(tokens) if token not in self.search.hidden]
            symbols = [self.task.target_dictionary[tokens[place]] for place in seen]
            target, target_words = words_of(symbols, self._subwords)
            given = (output["cross_attention"][seen], source[piece.place.start : piece.place.stop], target)
            if self._options.alignment == "soft":
                found += map(tuple, soft_alignment(*given, (len(target_words), len(source_words))).tolist())
            else:
                found += [(first, len(words) + second) for first, second in hard_alignment(*given)]
            words += target_words
        name = "attention" if self._options.alignment == "soft" else "alignment"
        return {"words": tuple(words), name: tuple(found)}
