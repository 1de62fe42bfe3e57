"""Translations and references from files: plain text, or output of fairseq-generate and fairseq-interactive."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairseq_compat import UserError
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

    ``lines`` says which of fairseq's lines they are, ``D-`` or ``H-``; None for plain text. ``targets`` are the ``T-``
    lines, unless the sentences have another form: fairseq decodes ``T-`` lines as it does ``D-`` lines.
    """

    path: str
    sentences: list[str]
    lines: str | None = None
    targets: list[str] | None = None


def read_translations(path: str, *, tokenized: bool = False) -> Translations:
    """Read a system's output, plain text or output of fairseq; raise UserError where sentences are missing or repeated.

    ``H-`` lines have the model's tokens after ``--post-process``; ``D-`` lines the same, decoded with ``--bpe`` and
    ``--tokenizer``. ``D-`` lines are used, or ``H-`` lines if there are no others; with ``tokenized`` ``H-`` lines, and
    words in place of their subwords if the ``D-`` lines have none.
    """
    lines = read_lines(path)
    if not any(map(_HYPOTHESIS.match, lines)):
        return Translations(path, lines)
    numbered = _numbered_lines(path, lines)
    order = range(1 + max(number for sentences in numbered.values() for number in sentences))
    text = {}
    for kind in filter(numbered.get, "THD"):
        _require_all(path, kind, numbered[kind], order)
        text[kind] = [numbered[kind][number] for number in order]
    kind = "D" if "D" in text and not (tokenized and "H" in text) else "H"
    sentences, decoded = text[kind], text.get("D", text[kind])
    if (subwords := subwords_in(sentences)) and sentences != decoded:
        sentences = [_words(line, subwords) for line in sentences]
    same_form = list(map(str.split, sentences)) == list(map(str.split, decoded))
    return Translations(path, sentences, f"{kind}-", text.get("T") if same_form else None)


def read_reference(path: str) -> list[str]:
    """Read a reference, one sentence in each line; raise UserError if it is empty, or fairseq's output."""
    lines = read_lines(path)
    if any(map(_HYPOTHESIS.match, lines)):
        raise UserError(f"--ref {path} is the output of fairseq-generate; give the reference as plain text")
    return lines


def read_lines(path: str) -> list[str]:
    """Return the lines of a text file; ``-`` is stdin. Raise UserError if it is empty, or is not UTF-8."""
    lines = list(lines_of(path))
    if not lines:
        raise UserError(f"{path} is empty; it must have one line for each sentence")
    return lines


def subwords_in(sentences: Sequence[str]) -> str | None:
    """Return the kind of subwords in sentences, by its name in ``--post-process``; None if they are words."""
    return next((name for name, mark in _SUBWORDS.items() if any(map(mark.search, sentences))), None)


def _numbered_lines(path: str, lines: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the text of the S-, T-, H- and D- lines by number; of several hypotheses (``--nbest``) the best."""
    texts: dict[str, dict[int, str]] = {kind: {} for kind in "STHD"}
    last: dict[str, int] = {}
    for line in lines:
        if (parts := _NUMBERED.fullmatch(line)) is None:
            continue
        kind, number, text = parts[1], int(parts[2]), parts[3] or ""
        if number in texts[kind]:
            # The hypotheses of a sentence are consecutive; its source and its reference occur once.
            if kind in "ST" or last[kind] != number:
                raise UserError(
                    f"{path} has {kind}-{number} twice, not as one sentence's --nbest; give the output of one run"
                )
            continue
        last[kind] = number
        texts[kind][number] = text.partition("\t")[2] if kind in "HD" else text
    return texts


def _require_all(path: str, kind: str, sentences: Mapping[int, str], order: range) -> None:
    """Raise UserError unless there are lines of a kind for every number from 0 on."""
    if missing := len(order) - len(sentences):
        first = next(number for number in order if number not in sentences)
        raise UserError(
            f"{path} has no {kind}- line for {missing:,} of the sentences 0 to {order[-1]}, such as {first}; give the "
            "whole output of a run, parts one after the other in one file"
        )


def _words(line: str, kind: str) -> str:
    """Return a line with words in place of subwords."""
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("\u2581", " ").strip()
    return _SUBWORDS[kind].sub("", line)
