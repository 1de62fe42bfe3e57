"""Subwords of SentencePiece, whose own commands do not come with its Python package.

python pieces.py learn TEXT... --size N --output PREFIX
python pieces.py apply MODEL TEXT --output TEXT
"""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Iterator
from itertools import islice

import sentencepiece
from recipe_step import run_step

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write

#: The number of lines that all threads split together.
CHUNK = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    learning = commands.add_parser("learn")
    learning.set_defaults(run=learn)
    learning.add_argument("texts", nargs="+")
    learning.add_argument("--size", type=int, required=True, help="entries of the vocabulary")
    learning.add_argument("--sample", type=int, default=10_000_000, help="sentences to learn from, at most")
    applying = commands.add_parser("apply")
    applying.set_defaults(run=apply)
    applying.add_argument("model")
    applying.add_argument("text")
    applying.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads")
    for command in (learning, applying):
        command.add_argument("--output", required=True)
    options = parser.parse_args()
    options.run(options)


def learn(options: argparse.Namespace) -> None:
    """Learn a joint vocabulary: ``OUTPUT.model``, and ``OUTPUT.dict.txt`` for fairseq."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=spread(options.texts, options.sample),
            model_writer=model,
            model_type="bpe",
            vocab_size=options.size,
            character_coverage=0.9999,
            num_threads=os.cpu_count() or 1,
            minloglevel=2,
        )
    except RuntimeError as error:
        # Without its place in the source, SentencePiece's message says how many entries the characters need.
        reason = str(error).rpartition("] ")[2]
        raise UserError(f"VOCABULARY={options.size}: {reason}") from error
    content = model.getvalue()
    pieces = sentencepiece.SentencePieceProcessor(model_proto=content)
    with atomic_write(f"{options.output}.dict.txt") as file:
        # fairseq has its own <unk>, <s> and </s>. It requires counts, but does not use them here.
        file.writelines(
            f"{pieces.id_to_piece(entry)} 1\n".encode()
            for entry in range(pieces.get_piece_size())
            if not (pieces.is_control(entry) or pieces.is_unknown(entry))
        )
    with atomic_write(f"{options.output}.model") as file:
        file.write(content)


def spread(texts: list[str], most: int) -> Iterator[str]:
    """Yield at most ``most`` lines of all texts, evenly spread; SentencePiece's own sample differs every time."""
    # A first pass counts, so that the second can choose every n-th line.
    count = sum(1 for _ in _lines(texts))
    for number, line in enumerate(_lines(texts)):
        # True for ``most`` of the ``count`` lines: whenever number * most / count reaches another whole number.
        if count <= most or number * most // count < (number + 1) * most // count:
            yield line.rstrip("\n")


def _lines(texts: list[str]) -> Iterator[str]:
    for name in texts:
        with open(name, encoding="utf-8", newline="\n") as file:
            yield from file


def apply(options: argparse.Namespace) -> None:
    """Split each line of a text."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=options.model)
    with open(options.text, encoding="utf-8", newline="\n") as text, atomic_write(options.output) as file:
        while lines := [line.rstrip("\n") for line in islice(text, CHUNK)]:
            split = pieces.encode(lines, out_type=str, num_threads=options.jobs)
            file.write("".join(f"{' '.join(line)}\n" for line in split).encode())


if __name__ == "__main__":
    run_step(main)
