"""Subwords of SentencePiece, whose own commands do not come with its Python package.

python pieces.py learn TEXT... --size N --output PREFIX
python pieces.py apply MODEL [MODEL] --input train --languages zh en --output train.pieces [--longest 256]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import sentencepiece
from recipe_step import output_name, run_step, say

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write, copied_whole

#: Pairs that are split together, by all threads.
CHUNK = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    learning = commands.add_parser("learn")
    learning.add_argument("texts", nargs="+")
    learning.add_argument("--size", type=int, required=True, help="entries of the vocabulary")
    learning.add_argument("--sample", type=int, default=10_000_000, help="sentences to learn from, at most")
    learning.add_argument("--output", type=output_name, required=True, metavar="PREFIX")
    learning.set_defaults(run=lambda options: learn(options.texts, options.size, options.sample, options.output))
    applying = commands.add_parser("apply")
    applying.add_argument("models", nargs="+", help="a model for both sides, or one each")
    applying.add_argument("--input", required=True, metavar="PREFIX")
    applying.add_argument("--languages", nargs=2, required=True, metavar="LANG")
    applying.add_argument("--output", type=output_name, required=True, metavar="PREFIX")
    applying.add_argument("--longest", type=int, default=0, help="leave out pairs with a side of more subwords")
    applying.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads")
    applying.set_defaults(
        run=lambda options: apply(
            options.models, options.input, options.languages, options.output, options.longest, options.jobs
        )
    )
    options = parser.parse_args()
    options.run(options)


def learn(texts: list[str], size: int, sample: int, output: str) -> None:
    """Learn a joint vocabulary: ``OUTPUT.model``, and ``OUTPUT.dict.txt`` for fairseq.

    Raises:
        UserError: the text is too small for that many entries.
    """
    with tempfile.TemporaryDirectory(dir=Path(output).parent) as folder:
        prefix = str(Path(folder) / "pieces")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=spread(texts, sample),
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
        with atomic_write(f"{output}.dict.txt") as file:
            # fairseq has its own <unk>, <s> and </s>; it asks for a count and uses it for nothing here.
            file.writelines(
                f"{pieces.id_to_piece(entry)} 1\n".encode()
                for entry in range(pieces.get_piece_size())
                if not (pieces.is_control(entry) or pieces.is_unknown(entry))
            )
        copied_whole(f"{prefix}.model", f"{output}.model")


def spread(texts: list[str], most: int) -> Iterator[str]:
    """Yield at most so many lines of all texts, evenly spread; SentencePiece's own sample is another one each time."""
    count = sum(1 for _ in _lines(texts))
    for number, line in enumerate(_lines(texts)):
        if count <= most or number * most // count < (number + 1) * most // count:
            yield line.rstrip("\n")


def _lines(texts: list[str]) -> Iterator[str]:
    for name in texts:
        with open(name, encoding="utf-8", newline="\n") as file:
            yield from file


def apply(models: list[str], prefix: str, languages: list[str], output: str, longest: int, jobs: int) -> None:
    """Split both sides of a text; without ``longest`` all lines stay.

    Raises:
        UserError: a model is none of SentencePiece, the sides have not as many lines, or no pair is left.
    """
    splitters = [_load(model) for model in (models if len(models) > 1 else models * 2)]
    names = [f"{prefix}.{language}" for language in languages]
    read = count = 0
    with ExitStack() as stack:
        texts = [stack.enter_context(open(name, encoding="utf-8", newline="\n")) for name in names]
        files = [stack.enter_context(atomic_write(f"{output}.{language}")) for language in languages]
        while any(lines := [[line.rstrip("\n") for line in islice(text, CHUNK)] for text in texts]):
            if len(lines[0]) != len(lines[1]):
                (end, shorter), (_, longer) = sorted(zip(map(len, lines), names, strict=True))
                raise UserError(f"{shorter} has {read + end:,} lines, and {longer} more; their lines must be pairs")
            sides = (
                splitter.encode(side, out_type=str, num_threads=jobs)
                for splitter, side in zip(splitters, lines, strict=True)
            )
            pairs = list(zip(*sides, strict=True))
            read += len(pairs)
            if longest:
                pairs = [pair for pair in pairs if max(map(len, pair)) <= longest]
            count += len(pairs)
            for side, file in enumerate(files):
                file.write("".join(f"{' '.join(pair[side])}\n" for pair in pairs).encode())
        if count == 0:
            raise UserError(f"no pair of {' and '.join(names)} has at most {longest} subwords")
    say(f"{output}: {count:,} pairs" + (f", {read - count:,} left out: more than {longest} subwords" * (read > count)))


def _load(model: str) -> sentencepiece.SentencePieceProcessor:
    try:
        return sentencepiece.SentencePieceProcessor(model_file=model)
    except (RuntimeError, OSError) as error:
        raise UserError(f"{model} is no model of SentencePiece ({error}); remove it and learn it anew") from error


if __name__ == "__main__":
    run_step(main)
