"""Subwords: learned from counts of words or from text, and applied to parallel text by all cores.

python subwords.py learn-bpe WORDS... --merges N --output bpe.codes
python subwords.py vocabulary WORDS --codes bpe.codes --output bpe.vocab.en
python subwords.py learn-sentencepiece TEXT... --size N --output PREFIX
python subwords.py apply --model bpe.codes --input train --languages en de --output train.bpe [--longest 256]
                         [--vocabulary bpe.vocab.en bpe.vocab.de --threshold 8]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from parallel_lines import map_in_order
from step import run_step, say
from text_streams import read_text

from fairseq_compat import UserError
from fairseq_compat.files import copied_whole, written_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    bpe = commands.add_parser("learn-bpe")
    bpe.add_argument("words", nargs="+", help="files of words and their counts, as clean_corpus.py writes them")
    bpe.add_argument("--merges", type=int, required=True)
    bpe.add_argument("--output", required=True, help="file of the codes")
    bpe.set_defaults(run=lambda options: learn_bpe(options.words, options.merges, options.output))
    vocabulary = commands.add_parser("vocabulary")
    vocabulary.add_argument("words", help="words of one language and their counts")
    vocabulary.add_argument("--codes", required=True)
    vocabulary.add_argument("--output", required=True, help="file of subwords and their counts")
    vocabulary.set_defaults(run=lambda options: write_vocabulary(options.words, options.codes, options.output))
    pieces = commands.add_parser("learn-sentencepiece")
    pieces.add_argument("texts", nargs="+")
    pieces.add_argument("--size", type=int, required=True, help="entries of the vocabulary")
    pieces.add_argument("--sample", type=int, default=10_000_000, help="sentences to learn from, at most")
    pieces.add_argument("--output", required=True, metavar="PREFIX")
    pieces.set_defaults(
        run=lambda options: learn_sentencepiece(options.texts, options.size, options.sample, options.output)
    )
    apply = commands.add_parser("apply")
    apply.add_argument("--model", nargs="+", required=True, help="codes, or a .model of SentencePiece; or one a side")
    apply.add_argument("--input", required=True, metavar="PREFIX")
    apply.add_argument("--languages", nargs=2, required=True, metavar="LANG")
    apply.add_argument("--output", required=True, metavar="PREFIX")
    apply.add_argument("--longest", type=int, default=0, help="leave out pairs with a side of more subwords")
    apply.add_argument("--vocabulary", nargs=2, metavar="FILE", help="of codes: subwords of each side and their counts")
    apply.add_argument(
        "--threshold", type=int, default=0, help="split subwords further that occur less often than this"
    )
    apply.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    apply.set_defaults(
        run=lambda options: apply_subwords(
            options.model,
            options.input,
            options.languages,
            options.output,
            options.longest,
            options.jobs,
            options.vocabulary,
            options.threshold,
        )
    )
    options = parser.parse_args()
    options.run(options)


def learn_bpe(words: list[str], merges: int, output: str) -> None:
    """Merge operations of byte-pair encoding, by subword-nmt.

    Raises:
        UserError: there is nothing to learn from.
    """
    from subword_nmt.learn_bpe import learn_bpe as learn

    counts = "".join(Path(name).read_text(encoding="utf-8") for name in words)
    if not counts.strip():
        raise UserError(f"{' and '.join(words)} have no words to learn subwords from")
    codes = io.StringIO()
    # Its progress bar writes a line for each step where stderr is no terminal.
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        learn(io.StringIO(counts), codes, merges, is_dict=True)
    with written_whole(output) as file:
        file.write(codes.getvalue().encode())
    say(f"{output}: {codes.getvalue().count(chr(10)) - 1:,} merge operations")


def write_vocabulary(words: str, codes: str, output: str) -> None:
    """Count the subwords of a language's training text as ``subword-nmt get-vocab`` does, by counts of words."""
    split = splitter(codes)
    counts: Counter[str] = Counter()
    for line in read_text(words):
        word, _, times = line.rpartition(" ")
        for subword in split(word).split():
            counts[subword] += int(times)
    with written_whole(output) as file:
        file.writelines(f"{subword} {times}\n".encode() for subword, times in counts.most_common())


def learn_sentencepiece(texts: list[str], size: int, sample: int, output: str) -> None:
    """A joint vocabulary of SentencePiece: ``OUTPUT.model``, and ``OUTPUT.dict.txt`` for fairseq.

    Raises:
        UserError: the text is too small for that many entries.
    """
    import sentencepiece

    with tempfile.TemporaryDirectory(dir=Path(output).parent) as folder:
        prefix = str(Path(folder) / "pieces")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_spread(texts, _count(texts), sample),
                model_prefix=prefix,
                model_type="bpe",
                vocab_size=size,
                character_coverage=0.9999,
                num_threads=os.cpu_count() or 1,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            # Before its sentence, if there is one, it names a line of its own source and the condition there.
            reason = str(error).rpartition("]")[2].strip() or "there is no text"
            raise UserError(f"SentencePiece cannot learn {size:,} entries from {texts[0]}: {reason}") from error
        pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
        with written_whole(f"{output}.dict.txt") as file:
            # fairseq has its own <unk>, <s> and </s>; it asks for a count and uses it for nothing here.
            file.writelines(
                f"{pieces.id_to_piece(entry)} 1\n".encode()
                for entry in range(pieces.get_piece_size())
                if not (pieces.is_control(entry) or pieces.is_unknown(entry))
            )
        copied_whole(f"{prefix}.model", f"{output}.model")


def _count(texts: list[str]) -> int:
    lines = 0
    for name in texts:
        with open(name, "rb") as file:
            lines += sum(1 for _ in file)
    return lines


def _spread(texts: list[str], count: int, most: int) -> Iterator[str]:
    """At most so many of all ``count`` lines, evenly spread: SentencePiece's own sample is another one each time."""
    number = 0
    for name in texts:
        with open(name, "rb") as file:
            for line in file:
                if count <= most or number * most // count < (number + 1) * most // count:
                    yield line.decode().rstrip("\n")
                number += 1


def apply_subwords(
    models: list[str],
    prefix: str,
    languages: list[str],
    output: str,
    longest: int,
    jobs: int,
    vocabularies: list[str] | None = None,
    threshold: int = 0,
) -> None:
    """Split both sides of a text; without ``longest`` all lines stay.

    Args:
        models: codes or models of SentencePiece, one for both sides or one each.
        prefix: of the text's two files.
        languages: how these files end.
        output: prefix of what is written.
        longest: subwords of a side in pairs that are kept.
        jobs: processes.
        vocabularies: of codes: subwords of each side with their counts in the training text.
        threshold: subwords that occur less often are split further, as ``apply-bpe --vocabulary-threshold`` does it.

    Raises:
        UserError: a file is missing, or the two sides have different numbers of lines.
    """
    names = [f"{prefix}.{language}" for language in languages]
    work = _Work(models if len(models) > 1 else models * 2, longest, vocabularies, threshold)
    read = kept = 0
    with ExitStack() as stack:
        files = [stack.enter_context(written_whole(f"{output}.{language}")) for language in languages]
        for count, pairs in map_in_order(work, _pairs(*names), jobs, work.prepare):
            read += count
            kept += len(pairs)
            for side, file in enumerate(files):
                file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
        if kept == 0:
            raise UserError(
                f"no pair of {names[0]} and {names[1]} is left with at most {longest} subwords"
                if longest
                else f"{names[0]} and {names[1]} are empty"
            )
    say(f"{output}: {kept:,} pairs" + (f", {read - kept:,} left out: more than {longest} subwords" * (read > kept)))


class _Work:
    """What a process does with a chunk of pairs."""

    def __init__(self, models: list[str], longest: int, vocabularies: list[str] | None, threshold: int) -> None:
        self.models = models
        self.longest = longest
        self.vocabularies = vocabularies or [None] * len(models)
        self.threshold = threshold

    def prepare(self) -> None:
        global _splitters
        _splitters = [
            splitter(model, vocabulary, self.threshold)
            for model, vocabulary in zip(self.models, self.vocabularies, strict=True)
        ]

    def __call__(self, chunk: list[tuple[str, str]]) -> tuple[int, list[tuple[str, str]]]:
        pairs = ((_splitters[0](source), _splitters[1](target)) for source, target in chunk)
        return len(chunk), [
            pair for pair in pairs if not self.longest or max(len(side.split()) for side in pair) <= self.longest
        ]


#: Of this process, one for each side.
_splitters: list[Callable[[str], str]] = []


def splitter(model: str, vocabulary: str | None = None, threshold: int = 0) -> Callable[[str], str]:
    """What splits a line into subwords, by a file of codes or a model of SentencePiece.

    Args:
        model: the file.
        vocabulary: of codes: subwords and their counts.
        threshold: those that occur less often are split further.

    Raises:
        UserError: there is no such file, or it is neither.
    """
    if not os.path.exists(model):
        raise UserError(f"{model} does not exist; it is learned before text is split with it")
    if model.endswith(".model"):
        import sentencepiece

        try:
            pieces = sentencepiece.SentencePieceProcessor(model_file=model)
        except (RuntimeError, OSError) as error:
            raise UserError(f"{model} is no model of SentencePiece ({error}); remove it and learn it anew") from error
        return lambda line: " ".join(pieces.encode(line, out_type=str))
    from subword_nmt.apply_bpe import BPE, read_vocabulary

    known = None
    if vocabulary is not None and threshold > 0:
        with open(vocabulary, encoding="utf-8") as counts:
            known = read_vocabulary(counts, threshold)
    with open(model, encoding="utf-8") as codes:
        bpe = BPE(codes, vocab=known)
    return lambda line: str(bpe.process_line(line))


def _pairs(*names: str) -> Iterator[tuple[str, str]]:
    for source, target in zip_longest(*map(read_text, names)):
        if source is None or target is None:
            raise UserError(f"{names[0]} and {names[1]} have different numbers of lines; make them anew")
        yield source, target


if __name__ == "__main__":
    run_step(main)
