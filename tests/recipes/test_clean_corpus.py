"""Cleaned and tokenized text: which pairs stay, how they are tokenized, and that files are whole or not there."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import clean_corpus
import pytest
from clean_corpus import fault
from pair_tokens import CHUNK, tokenizer
from recipe_runs import lines

from fairseq_depthwise.moses_normalized import MosesNormalizedTokenizer


def pair(folder: Path, source: str, target: str) -> list[str]:
    """The names of both sides."""
    for side, text in (("en", source), ("de", target)):
        (folder / f"text.{side}").write_text(text, encoding="utf-8")
    return [str(folder / f"text.{side}") for side in ("en", "de")]


def run(folder: Path, *options: str, pair: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, clean_corpus.__file__, "--languages", "en", "de", *options]
    command += ["--pair", *pair, "--output", str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("out"))


def test_training_text(tmp_path: Path) -> None:
    names = pair(tmp_path, "Yes, he can.\n\nOK\nno\nlonger and longer text\n", "Ja, er kann.\nleer\nOK\n \nkurz\n")
    result = run(tmp_path, "--clean", "--tokenize", "moses", "--ratio", "3", "--jobs", "2", pair=names)
    assert (result.returncode, result.stdout) == (0, "")
    assert lines(tmp_path / "out.en") == ["Yes , he can ."]
    assert lines(tmp_path / "out.de") == ["Ja , er kann ."]
    assert lines(tmp_path / "out.report.txt") == [
        "5 pairs read, 1 kept",
        "2 left out: one side is empty",
        "1 left out: both sides are the same",
        "1 left out: one side is more than 3 times as long as the other",
    ]
    assert left(tmp_path) == ["out.de", "out.en", "out.report.txt"]


@pytest.mark.parametrize(
    ("limits", "source", "target", "why"),
    [
        ({}, " ", "b", "one side is empty"),
        ({"longest": 3}, "a b c", "d", None),
        ({"longest": 3}, "d", "a b c d", "more than 3 tokens"),
        ({"ratio": 1.5}, "a b c d", "c d", "one side is more than 1.5 times as long as the other"),
        ({"unequal": True}, "a b", "a b", "both sides are the same"),
        ({"copied": 0.5}, "a Berlin dog", "ein Berlin Hund", None),
        ({"copied": 0.5}, "Der Hund rennt", "der hund rennt", "copied"),
        ({"copied": 0.5}, "a dog Hund rennt", "ein Hund rennt laut", "copied"),
        ({"copied": 0.5}, "a Hund is is", "ein Hund rennt laut", None),
    ],
)
def test_limits(limits: dict[str, Any], source: str, target: str, why: str | None) -> None:
    assert fault(source, target, **limits) == fault(target, source, **limits) == why


@pytest.mark.parametrize(("source", "target"), [(2 * CHUNK, 2 * CHUNK + 3), (0, 0)])
def test_sides_of_different_length_and_nothing(source: int, target: int, tmp_path: Path) -> None:
    names = pair(tmp_path, "a\n" * source, "b\n" * target)
    (tmp_path / "out.en").write_text("older\n")
    result = run(tmp_path, "--clean", "--jobs", "2", pair=names)
    assert result.returncode == 1
    assert names[0] in result.stderr
    assert left(tmp_path) == ["out.en"]
    assert (tmp_path / "out.en").read_text() == "older\n"


SENTENCES = {
    "en": [
        "\u201cIt\u2019s a well-known fact,\u201d she said \u2013 and \u2018left\u2019\u2026",
        "AT&T | <b>bold</b> & \"quoted\" [x] {y} it's $5.50, Mr. Smith's e-mail: a@b.org",
        "Non\u00a0breaking \u00abguillemets\u00bb and \uff0cwide\uff1a\uff1f \u3010brackets\u3011",
    ],
    "de": ["\u201eDer 3-Jährige\u201c, z.B. am 1. Mai \u2014 \u201aja\u2018: 1.000,50 \u20ac & mehr | x < y"],
    "fr": ["L\u2019homme qu\u2019on \u00ab\u00a0aime\u00a0\u00bb\u202f? Aujourd'hui\u00a0: c'est-à-dire l'e-mail & <"],
    "cs": ["\u201eTo je ono,\u201c řekl \u2013 a odešel\u2026 | Nový & starý < 5"],
    "zh": ["他说\uff1a\u201c你好\uff0c世界\u201d\u3002A&B|C<D"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_tokenized_as_the_model_is_served(language: str) -> None:
    ours = tokenizer("moses", language)
    plugin = MosesNormalizedTokenizer(Namespace(source_lang=language, target_lang="en"))
    for sentence in SENTENCES[language]:
        tokens = ours(sentence)
        assert tokens == plugin.encode(sentence) != sentence
        assert not any(sign in tokens for sign in ("&amp;", "&lt;", "&#124;", "&quot;", "@-@"))


@pytest.mark.parametrize(
    ("kind", "language", "line", "expected"),
    [
        # As in the scripts for IWSLT: punctuation is not normalized, and what XML would read otherwise is escaped.
        (
            "moses-lower",
            "de",
            "„Das ist 'was“, sagte Ärzte & mehr.",
            "„ das ist &apos; was “ , sagte ärzte &amp; mehr .",
        ),
        ("unsegmented", "zh", "我 喜欢 GPU 2017 年 的 书 。", "我喜欢 GPU 2017 年的书。"),
        ("unsegmented", "en", "a b", "a b"),
    ],
)
def test_other_tokenizers(kind: str, language: str, line: str, expected: str) -> None:
    assert tokenizer(kind, language)(line) == expected
