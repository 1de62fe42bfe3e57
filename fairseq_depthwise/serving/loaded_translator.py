"""A trained model that stays in memory, and raw text through it, in any of the directions that it knows."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files, data_folder
from fairseq_depthwise.modules.decoding.graph_search import Graphs, SearchLimits
from fairseq_depthwise.modules.linear.quantized import require_quantized_products
from fairseq_depthwise.serving import alignment, long_lines
from fairseq_depthwise.serving.argument_names import arguments_named
from fairseq_depthwise.serving.beam_search import BeamOptions, BeamSearch, GraphBeamSearch
from fairseq_depthwise.serving.compiled_graphs import compiled_graphs
from fairseq_depthwise.serving.constraints import ORDERS, contains
from fairseq_depthwise.serving.directions import (
    first_task,
    has_language_token,
    languages_of,
    target_start,
    task_for,
)
from fairseq_depthwise.serving.exported_folder import ExportedFolder, is_exported, load_exported
from fairseq_depthwise.serving.int8 import Quantization, quantize
from fairseq_depthwise.serving.text_codec import TextCodec, TextOptions, TextSettings, settings_for
from fairseq_depthwise.serving.traced_graphs import refuse_unless_ours

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TranslatorOptions:
    """How lines are translated.

    Attributes:
        beam: how hypotheses are searched.
        text: how text becomes tokens.
        nbest: hypotheses of each line.
        token_scores: also return the tokens of hypotheses and their log-probabilities.
        alignment: also return which source words a hypothesis's words attend to: "hard", or True for that, each word
            to the one that it attends to most; "soft" how much to each.
        max_tokens: source tokens of a batch, padding counted; None for no such limit.
        batch_size: lines of a batch; None for no such limit.
        max_line_tokens: a line of more tokens is translated in pieces of so many at most; None for what the models
            take. Then a piece has half as many as a hypothesis may have, so that its translation is not cut off.
        dtype: of the models.
        int8: let linear layers compute in 8 bits, on a CPU, and everything else in float32.
        compile: compile the models for this CPU at the first use.
    """

    beam: BeamOptions = field(default_factory=BeamOptions)
    text: TextOptions = field(default_factory=TextOptions)
    nbest: int = 1
    token_scores: bool = False
    alignment: bool | str = False
    max_tokens: int | None = 4096
    batch_size: int | None = None
    max_line_tokens: int | None = None
    dtype: torch.dtype = torch.float32
    int8: bool = False
    compile: bool = False

    @arguments_named()
    def __post_init__(self) -> None:
        if self.int8 and self.compile:
            raise UserError("--int8 and --compile are both given; leave one of them out")
        if self.int8 and self.dtype != torch.float32:
            raise UserError(f"int8 requires float32, not {self.dtype}")
        if self.alignment not in (True, False, *alignment.KINDS):
            raise UserError(f"--print-alignment {self.alignment} is not known; give hard or soft")
        if self.beam.constraints not in (None, *ORDERS):
            raise UserError(f"--constraints {self.beam.constraints} is not known; give ordered or unordered")
        if self.nbest > self.beam.beam:
            raise UserError(f"--nbest {self.nbest} is more than the hypotheses that --beam {self.beam.beam} keeps")


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    Attributes:
        text: as people write it.
        score: as fairseq prints it: the logarithm of its probability to base 2, divided by its length to the power of
            the length penalty; of a line in pieces the mean.
        tokens: with ``token_scores``, all that the model wrote, also ends of sentences and tokens that name a language.
        token_scores: their log-probabilities to base 2.
        words: with ``alignment``, those of the tokenized text, before it is split into subwords.
        alignment: pairs of the number of a source word and of one of ``words``, counted from 0.
        attention: for the soft alignment, of each of ``words`` how much it attends to each source word.
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
    """What became of a line.

    Attributes:
        source: the line.
        hypotheses: the best first; of an empty line one that is empty.
        pieces: in how many it was translated; 0 for an empty line.
        cut_off: whether the best hypothesis ends where hypotheses must end.
        source_words: with ``alignment``, those of the tokenized line, before it is split into subwords.
        unmet_constraints: those that the best hypothesis does not have, and why.
    """

    source: str
    hypotheses: tuple[Hypothesis, ...]
    pieces: int
    cut_off: bool
    source_words: tuple[str, ...] | None = None
    unmet_constraints: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The best."""
        return self.hypotheses[0].text


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

    Attributes:
        quantization: with ``int8``, which linear layers compute in 8 bits; otherwise None.

    Raises:
        ArgumentError: a UserError that names these arguments: a file is no checkpoint, does not fit the data, or is not
            enough to say how text becomes tokens; or 8 bits are asked for where they are not possible.
    """

    @arguments_named()
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
        self.device = torch.device(device)
        self.quantization: Quantization | None = None
        self.models: list[Any] = []
        self._graphs: Graphs | None = None
        self._exported: ExportedFolder | None = None
        self._directions: dict[tuple[str, str], _Direction] = {}
        if is_exported(model):
            self._load_exported(model, data, source_lang, target_lang)
        else:
            self._load_checkpoints(model, data, source_lang, target_lang)
            if self.options.compile:
                self._compile(say)

    def _load_exported(self, path: str, data: str | None, source_lang: str | None, target_lang: str | None) -> None:
        if data is not None:
            raise UserError(f"--data {data}: {path} was exported and has its dictionaries; leave the option out")
        for name, asked in (("--int8", self.options.int8), ("--compile", self.options.compile)):
            if asked:
                raise UserError(f"{name} is for checkpoints, and {path} was exported; leave it out")
        if self.options.dtype != torch.float32:
            raise UserError(f"{path} was exported and computes in its own precision; leave --bf16 and --fp16 out")
        self.device = torch.device("cpu")
        self.files, self.data = [path], path
        exported = self._exported = load_exported(path)
        self._graphs, self._task = exported.graphs, exported.task
        languages = languages_of(self._task)
        for option, given, language in zip(
            ("--source-lang", "--target-lang"), (source_lang, target_lang), languages, strict=True
        ):
            if given not in (None, language):
                raise UserError(f"{option} {given}: {path} translates from {languages[0]} to {languages[1]}")
        self._text = exported.text_settings(self.options.text)
        self._direction(*self.languages)

    def _compile(self, say: Callable[[str], None]) -> None:
        """Compile the models, or say why not: then they translate as they are."""
        path = ":".join(self.files)
        try:
            for model in self.models:
                refuse_unless_ours(path, model)
            if self.device.type != "cpu":
                raise UserError(f"{path} is on a GPU, and compiling is for CPUs; add --cpu")
            self._graphs = compiled_graphs(self.models, path, say)
        except UserError as error:
            say(f"not compiled, and slower: {error}")
        else:
            self._directions.clear()

    def _load_checkpoints(self, model: str, data: str | None, source_lang: str | None, target_lang: str | None) -> None:
        if self.options.int8:
            if self.device.type != "cpu":
                raise UserError("--int8 computes on a CPU, and a GPU is in use; add --cpu, or give --bf16 instead")
            require_quantized_products()
        self.files = checkpoint_files(model)
        first, *others = self.files
        checkpoint = Checkpoint(first)
        checkpoint.require_family()
        if data is not None and not os.path.isdir(data):
            raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
        self.data = data or data_folder(getattr(checkpoint.cfg.task, "data", None), first)
        self._task = first_task(checkpoint, self.data, source_lang, target_lang)
        self._text = settings_for(
            self.options.text, checkpoint.cfg, self._task.source_dictionary, path=first, data=self.data
        )
        self.models = [checkpoint.model(self._task, self.data)]
        self.models += [Checkpoint(path).model(self._task, self.data) for path in others]
        self.models = [model.to(device=self.device, dtype=self.options.dtype) for model in self.models]
        self._direction(*self.languages)
        # After the search has made the models ready: then it is known which maps are computed together.
        self.quantization = quantize(self.models) if self.options.int8 else None

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language where :meth:`translate` is given none."""
        return languages_of(self._task)

    def translate(
        self, lines: Sequence[str], *, source_lang: str | None = None, target_lang: str | None = None
    ) -> list[str]:
        """The best translation of each line, in order; empty where the line is.

        Args:
            lines: raw text.
            source_lang: of a model that knows several.
            target_lang: of a model that knows several.

        Raises:
            UserError: the model does not know the language.
        """
        return [one.text for one in self.translations(lines, source_lang=source_lang, target_lang=target_lang)]

    @arguments_named()
    def translations(
        self,
        lines: Sequence[str],
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Translation]:
        """As :meth:`translate`, with scores and what else is known.

        Args:
            lines: raw text.
            source_lang: of a model that knows several.
            target_lang: of a model that knows several.
            constraints: for each line raw text that its translation must have. Where the search comes to no such
                translation, ``unmet_constraints`` says what is missing.
            progress: called with the number of pieces done and of all; a line is one piece unless it is too long.

        Raises:
            UserError: the model does not know the language, or cannot search with constraints.
        """
        own_source, own_target = self.languages
        direction = self._direction(source_lang or own_source, target_lang or own_target)
        wanted = self._checked(constraints, len(lines))
        read = [direction.read(line, texts) for line, texts in zip(lines, wanted, strict=True)]
        direction.search_all([piece for line in read for piece in line.pieces], progress)
        return list(map(direction.translation, read))

    def _checked(self, constraints: Sequence[Sequence[str]] | None, lines: int) -> Sequence[Sequence[str]]:
        """Return the constraints of each line."""
        if constraints is None:
            return [()] * lines
        if len(constraints) != lines:
            raise UserError(f"--constraints has {len(constraints)} lists for {lines} lines; give each line its own")
        for number, texts in enumerate(constraints):
            if isinstance(texts, str):
                raise UserError(f"--constraints[{number}] is the text {texts!r}; give a list of texts")
        if self._exported is not None and any(constraints):
            raise UserError(f"--constraints is for checkpoints, and {self.files[0]} was exported; give its checkpoint")
        return constraints

    def _direction(self, source_lang: str, target_lang: str) -> _Direction:
        """What a direction needs; made once."""
        pair = (source_lang, target_lang)
        if pair not in self._directions:
            task = task_for(self._task, source_lang, target_lang)
            codec = TextCodec(self._text, source_lang, target_lang)
            search = self._search(task)
            models = search if isinstance(search, BeamSearch) else None
            if models is None and self._exported is None:
                models = BeamSearch(task, self.models, self.options.beam, self.device)
            self._directions[pair] = _Direction(
                task, search, models, codec, self._text, self.options, self._longest(task), *self._around()
            )
        return self._directions[pair]

    def _search(self, task: FairseqTask) -> BeamSearch | GraphBeamSearch:
        options = self.options.beam
        if self._graphs is None:
            return BeamSearch(task, self.models, options, self.device)
        if self._exported is None:
            longest = min(model.max_decoder_positions() for model in self.models)
            start, prefix = target_start(task)
        else:
            for name, asked in (("--print-alignment", self.options.alignment), ("--constraints", options.constraints)):
                if asked:
                    raise UserError(f"{name} is for checkpoints, and {self.files[0]} was exported; give its checkpoint")
            longest, start, prefix = self._exported.longest[1], self._exported.start, [*self._exported.target_prefix]
        limits = SearchLimits(
            options.beam, options.length_penalty, min(options.max_length, longest - 1), start, tuple(prefix)
        )
        return GraphBeamSearch(self._graphs, task.target_dictionary, limits)

    def _around(self) -> tuple[Sequence[int], Sequence[int] | None]:
        """Return what is to be put around the tokens of a sentence; a checkpoint's task does so itself."""
        return ((), None) if self._exported is None else (self._exported.prefix, self._exported.suffix)

    def _longest(self, task: FairseqTask) -> int:
        """Source tokens that all models take, the end of the sentence among them."""
        if self._exported is not None:
            return self._exported.longest[0] - len(self._exported.prefix) - len(self._exported.suffix) + 1
        positions = utils.resolve_max_positions(task.max_positions(), *(model.max_positions() for model in self.models))
        longest: int = positions[0] if isinstance(positions, tuple | list) else positions
        return longest - has_language_token(task)


@dataclass
class _Piece:
    """What is translated at once: a line, unless it is too long.

    Attributes:
        place: of its tokens among those of the line.
        tokens: with an end of sentence (T).
        constraints: tokens that the translation must have.
        hypotheses: fairseq's, after the search; with ``cross_attention`` (T x S, without ends) for alignments.
    """

    place: range
    tokens: Tensor
    constraints: list[Tensor]
    hypotheses: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Line:
    """A line while it is translated.

    Attributes:
        text: as it was given.
        symbols: its tokens.
        pieces: none where it is empty.
        constraints: each constraint's tokens, None if no translation can have them, and why a translation may lack it.
    """

    text: str
    symbols: list[str]
    pieces: list[_Piece]
    constraints: dict[str, tuple[list[int] | None, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Direction:
    """One direction of a loaded model.

    Attributes:
        models: searches with the models themselves, for what ``search`` with graphs cannot do; None without models.
        settings: of the codec.
        longest: source tokens of a piece at most that the models take, with the end of the sentence.
        prefix: tokens before those of a piece.
        suffix: tokens after them, in the place of the end of the sentence; None for that.
    """

    task: FairseqTask
    search: BeamSearch | GraphBeamSearch
    models: BeamSearch | None
    codec: TextCodec
    settings: TextSettings
    options: TranslatorOptions
    longest: int
    prefix: Sequence[int] = ()
    suffix: Sequence[int] | None = None

    def read(self, text: str, constraints: Sequence[str]) -> _Line:
        """Return a line's pieces, and what their translations must have."""
        encoded = self.codec.encode(text)
        symbols = encoded.split()
        tokens = self.task.source_dictionary.encode_line(encoded, add_if_not_exist=False).long()
        end = tokens[-1:]
        pieces = [
            _Piece(place, torch.cat([tokens[place.start : place.stop], end]), []) for place in self._places(symbols)
        ]
        line = _Line(text, symbols, pieces)
        if any(constraint.strip() for constraint in constraints):
            self._constrain(line, [constraint for constraint in constraints if constraint.strip()])
        return line

    def _places(self, symbols: Sequence[str]) -> list[range]:
        """Return the places of a line's pieces; none where it is empty."""
        if not symbols:
            return []
        given = self.options.max_line_tokens
        limit = self.longest - 1 if given is None else min(given, self.longest - 1)
        if len(symbols) <= limit:
            return [range(len(symbols))]
        if given is None:
            limit = max(1, min(limit, self.search.longest // 2))
        return long_lines.cut(symbols, limit)

    @cached_property
    def _target_codec(self) -> TextCodec:
        """The target's tokenizer and subwords for text to tokens."""
        _, target_lang = languages_of(self.task)
        return TextCodec(self.settings, target_lang, target_lang)

    def _constrain(self, line: _Line, constraints: Sequence[str]) -> None:
        """Add those constraints to a line that can be searched for, and of the others why they cannot."""
        dictionary = self.task.target_dictionary
        excluded = {dictionary.pad(), dictionary.unk(), *self.search.hidden}
        possible = []
        for constraint in constraints:
            encoded = self._target_codec.encode(constraint)
            tokens = dictionary.encode_line(encoded, add_if_not_exist=False, append_eos=False).long()
            why = "the search came to no translation with all constraints of the line; a larger beam may"
            unknown = [
                symbol for symbol, token in zip(encoded.split(), tokens.tolist(), strict=True) if token in excluded
            ]
            if unknown:
                why = f"{' '.join(unknown)} is not in the target dictionary"
            elif len(tokens):
                possible.append(tokens)
            line.constraints[constraint] = (None if unknown else tokens.tolist(), why)
        _, prefix = target_start(self.task)
        needed, room = sum(map(len, possible)), self.search.longest - len(prefix)
        if len(line.pieces) == 1 and needed <= room:
            line.pieces[0].constraints = possible
            return
        if len(line.pieces) > 1:
            reason = f"the line is translated in {len(line.pieces)} pieces, and nothing says in which it belongs"
        elif line.pieces:
            reason = f"the line's constraints have {needed} tokens, and a translation has {room} at most"
        else:
            reason = "the line is empty"
        for constraint, (wanted, _) in line.constraints.items():
            if wanted is not None:
                line.constraints[constraint] = (wanted, reason)

    def search_all(self, pieces: Sequence[_Piece], progress: Callable[[int, int], None]) -> None:
        """Find every piece's hypotheses; pieces of like length are in one batch."""

        def take(batch: dict[str, Any], members: Sequence[_Piece], found: Sequence[list[dict[str, Any]]]) -> None:
            for piece, hypotheses in zip(members, found, strict=True):
                piece.hypotheses = hypotheses[: self.options.nbest]
            if self.options.alignment:
                self._add_attention(batch, members)
            progress(sum(bool(piece.hypotheses) for piece in pieces), len(pieces))

        for batch, members in self._batches([piece for piece in pieces if piece.constraints]):
            assert self.models is not None  # constraints have been refused
            found = self.models.constrained_hypotheses(batch, [piece.constraints for piece in members])
            take(batch, members, found)
        for batch, members in self._batches([piece for piece in pieces if not piece.hypotheses]):
            take(batch, members, self.search.hypotheses(batch))

    def _batches(self, pieces: Sequence[_Piece]) -> Iterator[tuple[dict[str, Any], list[_Piece]]]:
        """Yield batches, as a data set makes them, and the pieces in them in order."""
        if not pieces:
            return
        tokens = [piece.tokens for piece in pieces]
        if self.suffix is not None:
            before, after = torch.tensor([*self.prefix]).long(), torch.tensor([*self.suffix]).long()
            tokens = [torch.cat([before, of_piece[:-1], after]) for of_piece in tokens]
        lengths = list(map(len, tokens))
        dataset: Any = self.task.build_dataset_for_inference(tokens, lengths)
        limit = self.options.max_tokens
        batches = dataset.batch_by_size(
            np.argsort(np.array(lengths), kind="stable"),
            # A longer piece makes a larger batch, rather than an error. 1 is for the token that names a language.
            max_tokens=None if limit is None else max(limit, max(lengths) + 1),
            max_sentences=self.options.batch_size,
        )
        for numbers in batches:
            batch = dataset.collater([dataset[number] for number in numbers])
            yield batch, [pieces[number] for number in batch["id"].tolist()]

    def _add_attention(self, batch: dict[str, Any], members: Sequence[_Piece]) -> None:
        """Add to each hypothesis how much its tokens attend to each token of the piece."""
        assert self.models is not None  # alignments have been refused
        hypotheses = [[hypothesis["tokens"] for hypothesis in piece.hypotheses] for piece in members]
        width = batch["net_input"]["src_tokens"].size(1)
        for piece, attention in zip(members, self.models.attention(batch, hypotheses), strict=True):
            # Padding and the token of a language come before a piece, and its end is last.
            columns = slice(width - len(piece.tokens), width - 1)
            for hypothesis, weights in zip(piece.hypotheses, attention, strict=True):
                hypothesis["cross_attention"] = weights[:, columns]

    def translation(self, line: _Line) -> Translation:
        """Return a line's translation of its pieces' hypotheses."""
        ranks = min((len(piece.hypotheses) for piece in line.pieces), default=1)
        by_rank = [[piece.hypotheses[rank] for piece in line.pieces] for rank in range(ranks)]
        best = [piece.hypotheses[0]["tokens"].tolist() for piece in line.pieces]
        return Translation(
            line.text,
            tuple(self._hypothesis(line, outputs) for outputs in by_rank),
            len(line.pieces),
            any(len(tokens) > self.search.longest for tokens in best),
            tuple(self._words(line.symbols).words) if self.options.alignment else None,
            {
                constraint: why
                for constraint, (wanted, why) in line.constraints.items()
                if wanted is None or not any(contains(tokens, wanted) for tokens in best)
            },
        )

    def _hypothesis(self, line: _Line, outputs: Sequence[dict[str, Any]]) -> Hypothesis:
        """Return the hypothesis of a line with these of its pieces."""
        _, target_lang = languages_of(self.task)
        texts = [self.codec.decode(self.search.text(output["tokens"])) for output in outputs]
        scores = [float(output["score"]) / math.log(2) for output in outputs]
        more: dict[str, Any] = {}
        if self.options.token_scores:
            dictionary = self.task.target_dictionary
            more["tokens"] = tuple(dictionary[token] for output in outputs for token in output["tokens"].tolist())
            more["token_scores"] = tuple(
                score / math.log(2) for output in outputs for score in output["positional_scores"].tolist()
            )
        if self.options.alignment:
            more |= self._aligned(line, outputs)
        score = sum(scores) / len(scores) if scores else 0.0
        return Hypothesis(long_lines.joined(texts, target_lang), score, **more)

    def _aligned(self, line: _Line, outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the words of a hypothesis and their alignment with those of the line."""
        source = self._words(line.symbols)
        words: list[str] = []
        pairs: list[tuple[int, int]] = []
        rows: list[tuple[float, ...]] = []
        for piece, output in zip(line.pieces, outputs, strict=True):
            tokens = output["tokens"].tolist()
            seen = [place for place, token in enumerate(tokens) if token not in self.search.hidden]
            target = self._words([self.task.target_dictionary[tokens[place]] for place in seen])
            numbers = source.numbers[piece.place.start : piece.place.stop]
            given = (output["cross_attention"][seen], numbers, target.numbers)
            if self.options.alignment == "soft":
                matrix = alignment.soft_alignment(*given, (len(target.words), len(source.words)))
                rows += map(tuple, matrix.tolist())
            else:
                pairs += [(first, len(words) + second) for first, second in alignment.hard_alignment(*given)]
            words += target.words
        if self.options.alignment == "soft":
            return {"words": tuple(words), "attention": tuple(rows)}
        return {"words": tuple(words), "alignment": tuple(pairs)}

    def _words(self, symbols: Sequence[str]) -> alignment.Words:
        return alignment.Words(symbols, self.settings.bpe.get("bpe"))
