"""Translates lines from one language to another: cuts them into pieces, searches in batches, and joins the results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

    Attributes:
        text: of all pieces.
        score: fairseq's: the base-2 logarithm of the probability, divided by the length to the power of the length
            penalty; averaged over a line's pieces.
        tokens: including ends of sentences and language tokens.
        token_scores: base-2 log-probabilities of the tokens.
        words: of the tokenized text before it is split into subwords; with an alignment.
        alignment: pairs of a source word and a word, numbered from 0.
        attention: of each word to each source word; for soft alignments.
    """

    text: str
    score: float
    tokens: tuple[str, ...] | None = None
    token_scores: tuple[float, ...] | None = None
    words: tuple[str, ...] | None = None
    alignment: tuple[tuple[int, int], ...] | None = None
    attention: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class Translation:
    """A translated line.

    Attributes:
        source: the line.
        hypotheses: the best first; an empty line has an empty one.
        pieces: the number of pieces that were translated; 0 for an empty line.
        cut_off: whether the best hypothesis reached the maximum length.
        source_words: with an alignment.
        unmet_constraints: constraints that the best hypothesis lacks -> why.
    """

    source: str
    hypotheses: tuple[Hypothesis, ...]
    pieces: int
    cut_off: bool
    source_words: tuple[str, ...] | None = None
    unmet_constraints: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The best hypothesis."""
        return self.hypotheses[0].text


@dataclass
class Piece:
    """A unit of translation: a line, or a part of one that is too long.

    Attributes:
        place: the range of its tokens in the line.
        tokens: with the end of the sentence (T).
        constraints: tokens that the translation must contain.
        hypotheses: fairseq's, after the search; with ``cross_attention`` (T x S, without ends) for alignments.
    """

    place: range
    tokens: Tensor
    constraints: list[Tensor] = field(default_factory=list)
    hypotheses: list[dict[str, Any]] = field(default_factory=list)


class Constraint(NamedTuple):
    """A constraint's tokens, or None if no translation can contain them, and why a translation may lack it."""

    tokens: list[int] | None
    reason: str


@dataclass
class Line:
    """A line that is being translated.

    Attributes:
        symbols: its tokens.
        pieces: empty for an empty line.
        constraints: by their text.
    """

    text: str
    symbols: list[str]
    pieces: list[Piece]
    constraints: dict[str, Constraint] = field(default_factory=dict)


class Direction:
    """Translates lines from one language to another with loaded models."""

    def __init__(self, loaded: LoadedModels, source_lang: str, target_lang: str, options: TranslatorOptions) -> None:
        self.task = task_for(loaded.task, source_lang, target_lang)
        self.search: Any = loaded.search(self.task)
        self.codec = TextCodec(loaded.text, source_lang, target_lang)
        # For constraints, which are split into tokens of the target language.
        self._target_codec = TextCodec(loaded.text, target_lang, target_lang)
        self._target_lang = target_lang
        self._subwords = loaded.text.bpe.get("bpe")
        self._options = options
        self._longest = loaded.longest
        self._around = loaded.around

    def read(self, text: str, constraints: Sequence[str]) -> Line:
        """Split a line into pieces, with the constraints on their translations."""
        # Tokens as text, with spaces between them.
        encoded = self.codec.encode(text)
        symbols = encoded.split()
        tokens = self.task.source_dictionary.encode_line(encoded, add_if_not_exist=False).long()
        # encode_line appends one to the line; every piece needs its own.
        end_of_sentence = tokens[-1:]
        pieces = []
        for place in self._places(symbols):
            pieces.append(Piece(place, torch.cat([tokens[place.start : place.stop], end_of_sentence])))
        line = Line(text, symbols, pieces)
        constraints = [constraint for constraint in constraints if constraint.strip()]
        if constraints:
            self._constrain(line, constraints)
        return line

    def _places(self, symbols: Sequence[str]) -> list[range]:
        """Return the range of each piece in a line's tokens."""
        if not symbols:
            return []
        longest_line = self._options.max_line_tokens
        # The model's limit includes the end of the sentence; --max-line-tokens does not.
        limit = min(longest_line or self._longest, self._longest - 1)
        if len(symbols) <= limit:
            return [range(len(symbols))]
        if not longest_line:
            # Half of what a hypothesis may have, so that the translation is not cut off.
            limit = min(limit, self.search.limits.max_length // 2)
        return long_lines.cut(symbols, max(1, limit))

    def _constrain(self, line: Line, constraints: Sequence[str]) -> None:
        """Add constraints to a line: tokens to search for, if possible, and why its translation may lack them."""
        dictionary = self.task.target_dictionary
        # <unk> stands for words that are not in the dictionary; the others are not text.
        excluded = {dictionary.pad(), dictionary.unk(), *self.search.hidden}
        possible: list[tuple[str, Tensor]] = []  # a list, because a constraint may be given twice
        for constraint in constraints:
            encoded = self._target_codec.encode(constraint)
            tokens = dictionary.encode_line(encoded, add_if_not_exist=False, append_eos=False).long()
            pairs = zip(encoded.split(), tokens.tolist(), strict=True)
            unknown = [symbol for symbol, token in pairs if token in excluded]
            if unknown:
                line.constraints[constraint] = Constraint(None, f"{' '.join(unknown)} is not in the target dictionary")
            else:
                possible.append((constraint, tokens))

        # The remaining ones: why a translation may lack them, and whether to search for them at all.
        needed = sum(len(tokens) for _, tokens in possible)
        capacity = self.search.limits.max_length - len(self.search.limits.prefix)
        if len(line.pieces) > 1:
            reason = f"the line is translated in {len(line.pieces)} pieces, and nothing says in which it belongs"
        elif not line.pieces:
            reason = "the line is empty"
        elif needed > capacity:
            reason = f"the line's constraints have {needed} tokens, and a translation has {capacity} at most"
        else:
            reason = "the search came to no translation with all constraints of the line; a larger beam may"
            line.pieces[0].constraints = [tokens for _, tokens in possible if len(tokens)]
        for constraint, tokens in possible:
            line.constraints[constraint] = Constraint(tokens.tolist(), reason)

    def search_all(self, pieces: Sequence[Piece], nbest: int) -> None:
        """Find up to ``nbest`` hypotheses of every piece."""
        # Separately, so that all other lines are translated as usual, by graphs if there are any.
        constrained = [piece for piece in pieces if piece.constraints]
        for batch, members in self._batches(constrained):
            constraints = [piece.constraints for piece in members]
            self._take_hypotheses(batch, members, self.search.hypotheses(batch, constraints), nbest)
        # Including those for which the search with constraints found no translation.
        remaining = [piece for piece in pieces if not piece.hypotheses]
        for batch, members in self._batches(remaining):
            self._take_hypotheses(batch, members, self.search.hypotheses(batch), nbest)

    def _take_hypotheses(
        self, batch: dict[str, Any], pieces: Sequence[Piece], hypotheses: Sequence[list[dict[str, Any]]], nbest: int
    ) -> None:
        """Store hypotheses in their pieces, with their attention if alignments are needed."""
        for piece, of_piece in zip(pieces, hypotheses, strict=True):
            piece.hypotheses = of_piece[:nbest]
        if not self._options.alignment:
            return
        tokens = [[hypothesis["tokens"] for hypothesis in piece.hypotheses] for piece in pieces]
        width = batch["net_input"]["src_tokens"].size(1)
        for piece, attention in zip(pieces, self.search.attention(batch, tokens), strict=True):
            # Padding and a language token come before the piece; its end of sentence comes last.
            columns = slice(width - len(piece.tokens), width - 1)
            for hypothesis, weights in zip(piece.hypotheses, attention, strict=True):
                hypothesis["cross_attention"] = weights[:, columns]

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[tuple[dict[str, Any], list[Piece]]]:
        """Yield fairseq's batches, and the pieces in each of them in order."""
        if not pieces:
            return
        tokens = [piece.tokens for piece in pieces]
        if self._around is not None:
            before, after = (torch.tensor(some).long() for some in self._around)
            # ``after`` includes the end of the sentence.
            tokens = [torch.cat([before, of_piece[:-1], after]) for of_piece in tokens]
        lengths = list(map(len, tokens))
        dataset: Any = self.task.build_dataset_for_inference(tokens, lengths)
        max_tokens = self._options.max_tokens
        if max_tokens is None and not self._options.batch_size:
            max_tokens = 4096
        if max_tokens is not None:
            # A piece that is too long makes batches larger, rather than fail. 1 is for a language token.
            max_tokens = max(max_tokens, max(lengths) + 1)
        # Batches of similar lengths need little padding; a stable sort makes them reproducible.
        by_length = np.argsort(np.array(lengths), kind="stable")
        for numbers in dataset.batch_by_size(by_length, max_tokens=max_tokens, max_sentences=self._options.batch_size):
            batch = dataset.collater([dataset[number] for number in numbers])
            # The collater reorders a batch by length; its ids say which sentence is where.
            yield batch, [pieces[number] for number in batch["id"].tolist()]

    def translation(self, line: Line) -> Translation:
        """Return a line's translation, made of its pieces' hypotheses."""
        # The best of every piece, the second best of every piece ..., as many as all pieces have.
        hypotheses_of_pieces = [piece.hypotheses for piece in line.pieces]
        by_rank = list(zip(*hypotheses_of_pieces, strict=False)) or [()]
        best = [output["tokens"].tolist() for output in by_rank[0]]
        unmet = {}
        for text, constraint in line.constraints.items():
            wanted = constraint.tokens
            if wanted is None or not any(contains(tokens, wanted) for tokens in best):
                unmet[text] = constraint.reason
        source_words = None
        if self._options.alignment:
            _, words = words_of(line.symbols, self._subwords)
            source_words = tuple(words)
        return Translation(
            line.text,
            hypotheses=tuple(self._hypothesis(line, outputs) for outputs in by_rank),
            pieces=len(line.pieces),
            # Unlike max_length, tokens include the end of the sentence.
            cut_off=any(len(tokens) > self.search.limits.max_length for tokens in best),
            source_words=source_words,
            unmet_constraints=unmet,
        )

    def _hypothesis(self, line: Line, outputs: Sequence[dict[str, Any]]) -> Hypothesis:
        """Join hypotheses of the pieces of a line."""
        texts = [self.codec.decode(self.search.text(output["tokens"])) for output in outputs]
        # fairseq's scores are natural logarithms; its commands print them to base 2.
        scores = [float(output["score"]) / math.log(2) for output in outputs]
        details: dict[str, Any] = {}
        if self._options.token_scores:
            details |= self._token_scores(outputs)
        if self._options.alignment:
            details |= self._aligned_words(line, outputs)
        score = sum(scores) / len(scores) if scores else 0.0
        return Hypothesis(long_lines.joined(texts, self._target_lang), score, **details)

    def _token_scores(self, outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the tokens of a hypothesis, and their scores."""
        dictionary = self.task.target_dictionary
        tokens: list[str] = []
        token_scores: list[float] = []
        for output in outputs:
            tokens += [dictionary[token] for token in output["tokens"].tolist()]
            token_scores += [score / math.log(2) for score in output["positional_scores"].tolist()]
        return {"tokens": tuple(tokens), "token_scores": tuple(token_scores)}

    def _aligned_words(self, line: Line, outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the words of a hypothesis, and their alignment with the words of the line."""
        is_soft = self._options.alignment == "soft"
        source, source_words = words_of(line.symbols, self._subwords)
        words: list[str] = []
        alignment: list[tuple[Any, ...]] = []
        for piece, output in zip(line.pieces, outputs, strict=True):
            tokens = output["tokens"].tolist()
            # Leave out rows of tokens that are not text; _take_hypotheses has left out such columns.
            visible = [place for place, token in enumerate(tokens) if token not in self.search.hidden]
            symbols = [self.task.target_dictionary[tokens[place]] for place in visible]
            target, target_words = words_of(symbols, self._subwords)
            attention = output["cross_attention"][visible]
            source_of_piece = source[piece.place.start : piece.place.stop]
            if is_soft:
                sizes = (len(target_words), len(source_words))
                alignment += map(tuple, soft_alignment(attention, source_of_piece, target, sizes).tolist())
            else:
                for source_word, word in hard_alignment(attention, source_of_piece, target):
                    # Target words count from 0 in every piece; source words already count over the whole line.
                    alignment.append((source_word, len(words) + word))
            words += target_words
        return {"words": tuple(words), "attention" if is_soft else "alignment": tuple(alignment)}
