"""A trained model that stays in memory, and raw text through it, in any of the directions that it knows."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from fairseq import utils
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat import UserError, belonging
from fairseq_compat.belonging import file_digest
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files, data_folder
from fairseq_depthwise.modules.decoding.graph_search import Graphs, SearchLimits
from fairseq_depthwise.serving.argument_names import arguments_named
from fairseq_depthwise.serving.beam_search import BeamOptions, BeamSearch, GraphBeamSearch
from fairseq_depthwise.serving.compiled_graphs import compiled_graphs
from fairseq_depthwise.serving.directions import (
    first_task,
    has_language_token,
    languages_of,
    target_start,
    task_for,
)
from fairseq_depthwise.serving.exported_folder import ExportedFolder, is_exported, load_exported
from fairseq_depthwise.serving.onnx_graphs import int8_graphs, require_onnx
from fairseq_depthwise.serving.search.alignment import KINDS
from fairseq_depthwise.serving.search.constraints import ORDERS
from fairseq_depthwise.serving.search.direction import Direction, Hypothesis, Translation
from fairseq_depthwise.serving.text_codec import TextCodec, TextOptions, settings_for
from fairseq_depthwise.serving.traced_graphs import refuse_unless_ours

__all__ = ["Hypothesis", "LoadedTranslator", "Translation", "TranslatorOptions"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TranslatorOptions:
    """How lines are translated.

    Attributes:
        beam: how hypotheses are searched.
        text: how text becomes tokens.
        nbest: hypotheses of each line.
        max_tokens: source tokens of a batch, padding counted; None for no such limit.
        batch_size: lines of a batch; None for no such limit.
        max_line_tokens: a line of more tokens is translated in pieces of so many at most; None for what the models
            take. Then a piece has half as many as a hypothesis may have, so that its translation is not cut off.
        dtype: of the models.
        int8: let matrix products compute in 8 bits, on a CPU, through onnxruntime.
        compile: compile the models for this CPU at the first use.
        token_scores: also return the tokens of hypotheses and their log-probabilities.
        alignment: also return which source words a hypothesis's words attend to: "hard", or True for that, each word
            to the one that it attends to most; "soft" how much to each.
    """

    beam: BeamOptions = field(default_factory=BeamOptions)
    text: TextOptions = field(default_factory=TextOptions)
    nbest: int = 1
    max_tokens: int | None = 4096
    batch_size: int | None = None
    max_line_tokens: int | None = None
    dtype: torch.dtype = torch.float32
    int8: bool = False
    compile: bool = False
    token_scores: bool = False
    alignment: bool | str = False

    @arguments_named()
    def __post_init__(self) -> None:
        if self.int8 and self.compile:
            raise UserError("--int8 and --compile are both given; leave one of them out")
        if self.int8 and self.dtype != torch.float32:
            raise UserError(f"int8 requires float32, not {self.dtype}")
        if self.alignment not in (True, False, *KINDS):
            raise UserError(f"--print-alignment {self.alignment} is not known; give hard or soft")
        if self.beam.constraints not in (None, *ORDERS):
            raise UserError(f"--constraints {self.beam.constraints} is not known; give ordered or unordered")
        if self.beam.sampling_topk is not None and not self.beam.sampling:
            raise UserError(f"--sampling-topk {self.beam.sampling_topk} is for --sampling; add it")
        if self.beam.sampling:
            given = {"--constraints": self.beam.constraints, "--int8": self.int8, "--compile": self.compile}
            if names := [name for name, value in given.items() if value]:
                raise UserError(f"--sampling does not go with {names[0]}; leave one of them out")
        if self.nbest > self.beam.beam:
            raise UserError(f"--nbest {self.nbest} is more than the hypotheses that --beam {self.beam.beam} keeps")


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
        self.models: list[Any] = []
        self._graphs: Graphs | None = None
        self._exported: ExportedFolder | None = None
        self._directions: dict[tuple[str, str], Direction] = {}
        self._seen: Counter[str] = Counter()
        if is_exported(model):
            self._load_exported(model, data, source_lang, target_lang)
        else:
            self._load_checkpoints(model, data, source_lang, target_lang)
            if self.options.compile:
                self._compile(say)
            elif self.options.int8:
                self._quantize(say)

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
        self.direction(*self.languages)

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

    def _quantize(self, say: Callable[[str], None]) -> None:
        path = ":".join(self.files)
        for model in self.models:
            refuse_unless_ours(path, model)
        self._graphs = int8_graphs(self.models, path, say)
        self._directions.clear()

    def _load_checkpoints(self, model: str, data: str | None, source_lang: str | None, target_lang: str | None) -> None:
        if self.options.int8:
            if self.device.type != "cpu":
                raise UserError("--int8 computes on a CPU, and a GPU is in use; add --cpu, or give --bf16 instead")
            require_onnx()
        self.files = checkpoint_files(model)
        first, *others = self.files
        checkpoint = Checkpoint(first)
        checkpoint.require_family()
        if data is not None and not os.path.isdir(data):
            raise UserError(f"--data {data} is not a folder; give one that fairseq-preprocess made")
        self.data = data or data_folder(getattr(checkpoint.cfg.get("task"), "data", None), first)
        self._task = first_task(checkpoint, self.data, source_lang, target_lang)
        self._text = settings_for(
            self.options.text, checkpoint.cfg, self._task.source_dictionary, path=first, data=self.data,
            recorded=checkpoint.belongs_to,
        )  # fmt: skip
        self.models = [checkpoint.model(self._task, self.data)]
        for other in map(Checkpoint, others):
            self._text.require(other.path, other.belongs_to)
            self.models.append(other.model(self._task, self.data))
        self.models = [model.to(device=self.device, dtype=self.options.dtype) for model in self.models]
        self.direction(*self.languages)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language where :meth:`translate` is given none."""
        return languages_of(self._task)

    def digests(self) -> dict[str, Any]:
        """Return digests of what translations depend on besides options, by name."""
        found = {f"model {number}": _digest(path) for number, path in enumerate(self.files, start=1)}
        settings = self.direction(*self.languages).settings.bpe.values()
        for path in filter(os.path.isfile, map(str, settings)):
            found["subwords"] = file_digest(path)
        return {**found, **belonging.of_dictionaries(self._task)}

    def with_nbest(self, nbest: int) -> LoadedTranslator:
        """Return a translator with the same models that makes text of so many hypotheses, which takes time."""
        other = copy.copy(self)
        other.options, other._directions = replace(self.options, nbest=nbest), {}
        return other

    def translate(
        self, lines: Sequence[str], *, source_lang: str | None = None, target_lang: str | None = None
    ) -> list[str]:
        """Return the best translation of each line, in order; empty where the line is.

        Args:
            lines: raw text.
            source_lang: of a model that knows several.
            target_lang: of a model that knows several.

        Raises:
            UserError: the model does not know the language.
        """
        translations = self.translations(lines, source_lang=source_lang, target_lang=target_lang)
        return [translation.text for translation in translations]

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
        """Return what :meth:`translate` does with scores and what else is known.

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
        direction = self.direction(source_lang or own_source, target_lang or own_target)
        wanted = self._checked(constraints, len(lines))
        read = [direction.read(line, texts) for line, texts in zip(lines, wanted, strict=True)]
        pieces = [piece for line in read for piece in line.pieces]
        self._count_unknown(torch.cat([piece.tokens[:-1] for piece in pieces]) if pieces else torch.empty(0))
        direction.search_all(pieces, progress)
        return list(map(direction.translation, read))

    def _count_unknown(self, tokens: Tensor) -> None:
        """Warn, once, where more than a tenth of the text so far is not in the dictionary."""
        seen, unknown = self._seen, self._task.source_dictionary.unk()
        seen["tokens"] += len(tokens)
        seen["unknown"] += int((tokens == unknown).sum())
        if 10 * seen["unknown"] > seen["tokens"] and not seen["warnings"]:
            seen["warnings"] += 1
            log.warning(
                "%d of %d tokens are <unk>; is the text tokenized and split into subwords as in training?",
                seen["unknown"], seen["tokens"],
            )  # fmt: skip

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

    def direction(self, source_lang: str, target_lang: str) -> Direction:
        """Return what a direction needs; made once."""
        pair = (source_lang, target_lang)
        if pair not in self._directions:
            task = task_for(self._task, source_lang, target_lang)
            codec = TextCodec(self._text, source_lang, target_lang)
            search = self._search(task)
            models = search if isinstance(search, BeamSearch) else None
            if models is None and self._exported is None:
                models = BeamSearch(task, self.models, self.options.beam, self.device)
            self._directions[pair] = Direction(
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
            given = {"--print-alignment": self.options.alignment, "--constraints": options.constraints}
            for name, asked in {**given, "--sampling": options.sampling}.items():
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
        """Return how many source tokens all models take, the end of the sentence among them."""
        if self._exported is not None:
            return self._exported.longest[0] - len(self._exported.prefix) - len(self._exported.suffix) + 1
        positions = utils.resolve_max_positions(task.max_positions(), *(model.max_positions() for model in self.models))
        longest: int = positions[0] if isinstance(positions, tuple | list) else positions
        return longest - has_language_token(task)


def _digest(model: str) -> str:
    """Return the SHA-256 of a checkpoint, or of the digests of an exported folder's files."""
    if not os.path.isdir(model):
        return file_digest(model)
    names = sorted(entry.name for entry in os.scandir(model) if entry.is_file())
    digests = [f"{name} {file_digest(os.path.join(model, name))}" for name in names]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
