"""Read translations and references: plain text, or output of fairseq-generate and fairseq-interactive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_compat import UserError
from fairseq_compat.text import joined_pieces
from fairseq_depthwise.text_files import lines_of

#: The beginning of an ``H-`` or ``D-`` line of fairseq: the sentence's number and a score.
_HYPOTHESIS = re.compile(r"[HD]-\d+\t-?(?:\d[\d.e+-]*|inf|nan)(?:\t|$)")

#: A line of fairseq with a sentence; others (positional scores, logs) are ignored.
_NUMBERED = re.compile(r"([STHD])-(\d+)(?:\t(.*))?", re.DOTALL)

#: Marks of subwords.
_SUBWORDS = {"subword_nmt": re.compile(r"@@(?: |$)"), "sentencepiece": re.compile("\u2581")}


@dataclass(frozen=True)
class Translations:
    """A system's output, in the order of the test set.

    Attributes:
        path: the file.
        sentences: the translations.
        lines: which lines of fairseq's output the sentences are, ``D-`` or ``H-``; None for plain text.
        targets: the ``T-`` lines; None if there are none, or if the sentences are ``H-`` lines of another form, as
            fairseq decodes ``T-`` lines like ``D-`` lines.
    """

    path: str
    sentences: list[str]
    lines: str | None = None
    targets: list[str] | None = None


def read_translations(path: str, *, tokenized: bool = False) -> Translations:
    """Read a system's output, plain text or output of fairseq.

    ``H-`` lines have the model's tokens after ``--post-process``; ``D-`` lines the same, decoded with ``--bpe`` and
    ``--tokenizer``. ``D-`` lines are used, or ``H-`` lines if there are no others; with ``tokenized`` ``H-`` lines, and
    words in place of their subwords if the ``D-`` lines have none.
    """
    lines = read_lines(path)
    if not any(map(_HYPOTHESIS.match, lines)):
        return Translations(path, lines)
    texts = _collect_numbered_lines(path, lines)
    kind = "D"
    if "D" not in texts or (tokenized and "H" in texts):
        kind = "H"
    sentences = texts[kind]
    decoded = texts.get("D", sentences)

    subwords = subwords_in(sentences)
    if subwords is not None and sentences != decoded:
        sentences = [_join_subwords(line, subwords) for line in sentences]
    # fairseq decodes T- lines like D- lines.
    same_form = list(map(str.split, sentences)) == list(map(str.split, decoded))
    return Translations(path, sentences, f"{kind}-", texts.get("T") if same_form else None)


def read_reference(path: str) -> list[str]:
    """Read a reference, one sentence in each line; raise UserError if it is blank, or fairseq's output."""
    lines = read_lines(path)
    if any(map(_HYPOTHESIS.match, lines)):
        raise UserError(f"--ref {path} is the output of fairseq-generate; give the reference as plain text")
    if not any(map(str.strip, lines)):
        raise UserError(f"--ref {path} has only blank lines; there is nothing to score against")
    return lines


def read_lines(path: str) -> list[str]:
    """Return the lines of a text file; ``-`` is stdin. Raise UserError if it is empty, or is not UTF-8."""
    lines = list(lines_of(path))
    if not lines:
        raise UserError(f"{path} is empty; it must have one line for each sentence")
    return lines


def subwords_in(sentences: Sequence[str]) -> str | None:
    """Return the type of subwords in sentences, as named in ``--post-process``; None if they are words."""
    for kind, mark in _SUBWORDS.items():
        if any(map(mark.search, sentences)):
            return kind
    return None


def _collect_numbered_lines(path: str, lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the S-, T-, H- and D- lines by letter, in the order of their numbers; with ``--nbest``, the best ones."""
    texts: dict[str, dict[int, str]] = {}
    last: dict[str, int] = {}
    for match in map(_NUMBERED.fullmatch, lines):
        if match is None:
            continue
        kind, number, text = match[1], int(match[2]), match[3] or ""
        by_number = texts.setdefault(kind, {})
        # The hypotheses of a sentence are consecutive; its source and its reference occur once.
        if number in by_number and (kind in "ST" or last[kind] != number):
            raise UserError(f"{path} has {kind}-{number} twice; give the output of one run")
        if kind in "HD":  # these lines have a score before the text
            _score, _, text = text.partition("\t")
        # Keep the first hypothesis of a sentence: it is the best.
        by_number.setdefault(number, text)
        last[kind] = number

    # All letters have the same sentences, as many as the largest number of any of them says.
    count = 1 + max(max(by_number) for by_number in texts.values())
    ordered = {}
    for kind, by_number in texts.items():
        missing = count - len(by_number)
        if missing:
            raise UserError(
                f"{path} has no {kind}- line for {missing:,} of the sentences 0 to {count - 1}; give the whole output "
                "of a run, parts one after the other in one file"
            )
        ordered[kind] = [text for _, text in sorted(by_number.items())]
    return ordered


def _join_subwords(line: str, kind: str) -> str:
    """Return a line with words in place of subwords."""
    if kind == "sentencepiece":
        return joined_pieces(line)
    return _SUBWORDS[kind].sub("", line)
