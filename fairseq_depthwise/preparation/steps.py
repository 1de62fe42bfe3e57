"""The steps from raw text to binarized data. Each reads and writes files of a folder, and returns what it counted.

Text is tokenized and split by the same objects of fairseq that later translate new text (``text_codec.py``), so that a
model never sees tokens that it was not trained with.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.workers import Workers
from fairseq_depthwise.preparation.settings import (
    CHARACTER_COVERAGE,
    SUBWORDS,
    TOKENIZERS,
    Part,
    Settings,
    names_of,
    preprocess_options,
    text_name,
)
from fairseq_depthwise.text_files import lines_of

#: Training pairs that are held out without --valid: one in so many, and at most so many.
HELD_OUT_SHARE, HELD_OUT_MOST = 20, 2000

#: Lines that travel to a worker together.
_CHUNK = 2000

Counts = dict[str, Any]


class Steps:
    """All steps of one preparation.

    Attributes:
        folder: of the texts between the steps, such as ``train.en``, ``train.tok.en``, ``train.sub.en`` and
            ``train.clean.en``, and of the file of the subwords.
        data: the folder for fairseq-train.
        names: of the parts of the corpus, "valid" among them.
    """

    def __init__(self, settings: Settings, parts: Sequence[Part], folder: str, workers: int) -> None:
        self.settings, self.folder, self.workers = settings, folder, workers
        self.data = os.path.join(folder, "data")
        self._parts = parts
        self.names = names_of(parts)
        # Options of fairseq; empty for none.
        self._tokenizer = TOKENIZERS[settings.tokenizer]
        self._subwords = SUBWORDS[settings.subwords]

    def in_order(self) -> dict[str, tuple[str, Callable[[], Counts]]]:
        """Return the steps that there are with these settings: name -> what is said before it, and the step."""
        steps = {"reading": ("reading the texts", self.read)}
        if self._tokenizer:
            steps["tokenizing"] = ("tokenizing", self.tokenize)
        if self._subwords:
            steps["learning subwords"] = (f"learning {self.settings.merges:,} subwords", self.learn)
            steps["splitting"] = ("splitting into subwords", self.split)
        steps["cleaning"] = ("looking for training pairs to drop", self.clean)
        steps["binarizing"] = ("binarizing", self.binarize)
        return steps

    def text(self, form: str, name: str, language: str) -> str:
        """Return the file of a text between two steps."""
        return os.path.join(self.folder, text_name(name, form, language))

    def read(self) -> Counts:
        """Copy all texts as plain UTF-8; without --valid every N-th training pair is held out."""
        counts: Counts = {}
        for part in self._parts:
            lines = [_copy(path, self.text("", part.name, language)) for path, language in self._sides(part)]
            if lines[0] != lines[1]:
                raise UserError(
                    f"{part.paths[0]} has {lines[0]:,} lines and {part.paths[1]} {lines[1]:,}; line N of one has to be "
                    "the translation of line N of the other"
                )
            if lines[0] == 0:
                raise UserError(f"{part.paths[0]} and {part.paths[1]} have no lines; there is nothing to prepare")
            counts[part.name] = lines[0]
        if "valid" not in counts:
            counts["every"], counts["valid"] = held_out(counts["train"])
            if counts["valid"] == 0:
                raise UserError(f"{self._parts[0].paths[0]} has one line only, of which none can be held out; add more")
            for language in self.settings.languages:
                self._hold_out(language, counts["every"], counts["valid"])
            counts["train"] -= counts["valid"]
        return counts

    def _sides(self, part: Part) -> Iterable[tuple[str, str]]:
        return zip(part.paths, self.settings.languages, strict=True)

    def _hold_out(self, language: str, every: int, most: int) -> None:
        """Move every N-th line of the training text to the validation text."""
        train = self.text("", "train", language)
        with atomic_write(self.text("", "valid", language)) as valid, atomic_write(train) as rest:
            for number, line in enumerate(lines_of(train), start=1):
                # Spread over the whole text, which may be sorted by topic.
                is_held_out = number % every == 0 and number <= every * most
                (valid if is_held_out else rest).write(f"{line}\n".encode())

    def tokenize(self) -> Counts:
        """Tokenize all texts."""
        self._encode("", "tok", tokenizer=self._tokenizer, subwords={})
        return {}

    def learn(self) -> Counts:
        """Learn subwords of both languages together from the training text."""
        texts = [self.text(self.settings.words, "train", language) for language in self.settings.languages]
        if self.settings.subwords == "bpe":
            _learn_bpe(texts, self.settings.merges, os.path.join(self.folder, self._subwords["bpe_codes"]))
        else:
            model = os.path.join(self.folder, self._subwords["sentencepiece_model"])
            _learn_sentencepiece(texts, self.settings.merges, model, self.workers)
        return {}

    def split(self) -> Counts:
        """Split all texts into subwords."""
        self._encode(self.settings.words, "sub", tokenizer={}, subwords=self._subwords)
        return {}

    def _encode(self, before: str, after: str, *, tokenizer: Mapping[str, Any], subwords: Mapping[str, Any]) -> None:
        """Write another form of all texts."""
        options = _options(tokenizer, "tokenizer", self.folder), _options(subwords, "bpe", self.folder)
        for name in self.names:
            for language in self.settings.languages:
                lines = lines_of(self.text(before, name, language))
                with atomic_write(self.text(after, name, language)) as file:
                    for chunk in _mapped(_encoded, (*options, language), lines, self.workers):
                        file.writelines(f"{line}\n".encode() for line in chunk)

    def clean(self) -> Counts:
        """Drop training pairs that are empty, unequal or long; return how many for which reason."""
        dropped: Counter[str] = Counter()
        inputs = [self.text(self.settings.tokens, "train", language) for language in self.settings.languages]
        outputs = [self.text("clean", "train", language) for language in self.settings.languages]
        remaining = 0
        with atomic_write(outputs[0]) as source_file, atomic_write(outputs[1]) as target_file:
            for source, target in zip(*map(lines_of, inputs), strict=True):
                reason = self._fault(len(source.split()), len(target.split()))
                if reason:
                    dropped[reason] += 1
                    continue
                remaining += 1
                source_file.write(f"{source}\n".encode())
                target_file.write(f"{target}\n".encode())
        if not remaining:
            raise UserError(f"no training pair is left: {_reasons(dropped)}; give other limits to --clean")
        return {"dropped": dict(dropped)}

    def _fault(self, source: int, target: int) -> str:
        """Return why a pair of so many tokens is dropped; "" if it is not."""
        if not source or not target:
            return "a side is empty"
        if self.settings.longest and max(source, target) > self.settings.longest:
            return f"more than {self.settings.longest} tokens"
        if self.settings.ratio and max(source, target) > self.settings.ratio * min(source, target):
            return f"a side more than {self.settings.ratio:g} times as long"
        return ""

    def binarize(self) -> Counts:
        """Make fairseq's data, and count tokens, types and unknown tokens of each text."""
        if os.path.isdir(self.data):  # of a binarization that was interrupted
            shutil.rmtree(self.data)
        _preprocess(preprocess_options(self.settings, self.names, self.folder, self.data, self.workers))
        rows, sizes = [], {}
        # What the table shows: counted in the text, since the data has no types.
        for language in self.settings.languages:
            dictionary = _symbols(os.path.join(self.data, f"dict.{language}.txt"))
            sizes[language] = len(dictionary)
            for name in self.names:
                form = "clean" if name == "train" else self.settings.tokens
                lines, empty, counts = 0, 0, Counter[str]()
                # One pass over the text; lines are not held in memory.
                for line in lines_of(self.text(form, name, language)):
                    tokens = line.split()
                    lines += 1
                    empty += not tokens
                    counts.update(tokens)
                unknown = sum(count for token, count in counts.items() if token not in dictionary)
                row = {"part": name, "language": language, "lines": lines, "tokens": counts.total()}
                rows.append({**row, "types": len(counts), "unknown": unknown, "empty": empty})
        return {"rows": rows, "dictionaries": sizes}


def held_out(lines: int) -> tuple[int, int]:
    """Return N and how many: every N-th training pair is held out, up to that number."""
    count = min(HELD_OUT_MOST, max(1, lines // HELD_OUT_SHARE))
    return max(2, lines // count), min(count, lines // 2)


def _copy(path: str, copy: str) -> int:
    """Copy a text as plain lines of UTF-8; return how many."""
    count = 0
    with atomic_write(copy) as file:
        for line in lines_of(path):
            count += 1
            # Tools that read the copy may end a line at it.
            file.write(line.replace("\r", " ").encode() + b"\n")
    return count


def _learn_bpe(texts: Sequence[str], merges: int, path: str) -> None:
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    lines = (line for text in texts for line in lines_of(text))
    # It shows a bar, and ends with an error where nothing is left to merge.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(ValueError):
        learn_bpe(lines, codes, merges)
    learned = codes.getvalue().count("\n") - 1  # the first line is the version
    # Fewer than asked for would be another setting than the record has.
    if learned < merges:
        raise UserError(
            f"--merges {merges}: in the training text only {learned} merges join what occurs twice; give at most "
            f"{learned}, or --subwords none"
        )
    with atomic_write(path) as file:
        file.write(codes.getvalue().encode())


def _learn_sentencepiece(texts: Sequence[str], size: int, path: str, workers: int) -> None:
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in lines_of(text)),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=CHARACTER_COVERAGE,
            num_threads=workers,
            minloglevel=2,
        )
    except RuntimeError as error:
        # Its sentence, without its place in the source, says how many entries are possible.
        raise UserError(f"--merges {size}: {str(error).rpartition('] ')[2].strip()}") from error
    with atomic_write(path) as file:
        file.write(model.getvalue())


def _options(options: Mapping[str, Any], kind: str, folder: str) -> tuple[tuple[str, Any], ...]:
    """Return options of fairseq's tokenizer or subwords, with the place of their file."""
    named = {kind if name == "name" else name: value for name, value in options.items()}
    for option in ("bpe_codes", "sentencepiece_model"):
        if option in named:
            named[option] = os.path.join(folder, named[option])
    return tuple(named.items())


@cache
def _codec(tokenizer: tuple[tuple[str, Any], ...], subwords: tuple[tuple[str, Any], ...], language: str) -> Any:
    # Imports fairseq, which takes seconds; texts are checked before.
    from fairseq_depthwise.translation.text_codec import TextCodec, TextSettings

    return TextCodec(TextSettings(dict(tokenizer), dict(subwords)), language, language)


def _encoded(tokenizer: Any, subwords: Any, language: str, lines: Sequence[str]) -> list[str]:
    codec = _codec(tokenizer, subwords, language)
    return [codec.encode(line) for line in lines]


def _mapped(function: Any, arguments: Sequence[Any], lines: Iterator[str], workers: int) -> Iterator[list[str]]:
    """Yield the results for chunks of lines, in order; some chunks wait for each worker, not the whole text."""
    # Lists of lines, until one is empty.
    chunks = iter(lambda: list(islice(lines, _CHUNK)), [])
    # The first one here: workers inherit what is imported for it.
    for chunk in islice(chunks, 1):
        yield function(*arguments, chunk)
    first = list(islice(chunks, 1))
    if workers == 1 or not first:
        for chunk in (*first, *chunks):
            yield function(*arguments, chunk)
        return
    pool = Workers(workers)
    try:
        # Three chunks for each worker are in flight; for each result that is taken, one follows.
        waiting = deque(pool.apply_async(function, (*arguments, chunk)) for chunk in first)
        waiting.extend(pool.apply_async(function, (*arguments, chunk)) for chunk in islice(chunks, 3 * workers))
        while waiting:
            yield waiting.popleft().get()
            waiting.extend(pool.apply_async(function, (*arguments, chunk)) for chunk in islice(chunks, 1))
    finally:
        pool.join()


def _preprocess(words: list[str]) -> None:
    """Run fairseq-preprocess in this process; its log goes into its folder only."""
    from fairseq import options
    from fairseq_cli import preprocess

    log = preprocess.logger
    # fairseq adds a handler for its log file and leaves it there.
    handlers, propagates = list(log.handlers), log.propagate
    log.propagate = False
    try:
        preprocess.main(options.get_preprocessing_parser().parse_args(words))
    finally:
        log.propagate = propagates
        for handler in set(log.handlers).difference(handlers):
            log.removeHandler(handler)
            handler.close()


def _symbols(path: str) -> set[str]:
    """Return the entries of a dictionary of fairseq."""
    return {line.rpartition(" ")[0] for line in lines_of(path)}


def _reasons(dropped: Counter[str]) -> str:
    return ", ".join(f"{count:,} dropped: {reason}" for reason, count in dropped.most_common())
