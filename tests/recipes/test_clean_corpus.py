"""Cleaned and tokenized text: which pairs stay, how they are tokenized, and that files are whole or not there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import clean_corpus
import pytest
from clean_corpus import Limits

from fairseq_compat import UserError
from fairseq_depthwise.serving.moses_normalized import MosesNormalizedTokenizer

LIB = Path(clean_corpus.__file__).parent


def pair(folder: Path, source: str, target: str, name: str = "text") -> list[str]:
    """The names of both sides."""
    for side, text in (("en", source), ("de", target)):
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    return [str(folder / f"{name}.{side}") for side in ("en", "de")]


def run(folder: Path, *options: str, pairs: list[list[str]], output: str = "out") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LIB / "clean_corpus.py"), "--languages", "en", "de", *options]
    for names in pairs:
        command += ["--pair", *names]
    command += ["--output", str(folder / output)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("out"))


def test_training_text(tmp_path: Path) -> None:
    names = pair(tmp_path, "Yes, he can.\n\nOK\nno\nlonger and longer text\n", "Ja, er kann.\nleer\nOK\n \nkurz\n")
    result = run(tmp_path, "--clean", "--tokenize", "moses", "--ratio", "3", "--jobs", "2", pairs=[names])
    assert (result.returncode, result.stdout) == (0, "")
    assert lines(tmp_path / "out.en") == ["Yes , he can ."]
    assert lines(tmp_path / "out.de") == ["Ja , er kann ."]
    report = [
        "5 pairs read, 1 kept",
        "2 left out: one side is empty",
        "1 left out: both sides are the same",
        "1 left out: one side is more than 3 times as long as the other",
    ]
    assert lines(tmp_path / "out.report.txt") == report
    assert left(tmp_path) == ["out.de", "out.en", "out.report.txt"]


def test_test_text(tmp_path: Path) -> None:
    """All lines stay; the untouched ones, but for white space, are for scores."""
    names = pair(tmp_path, "It\u2019s  so.\n\nOK\n", "Ist so!\nwas\nOK\n")
    assert run(tmp_path, "--raw", "--tokenize", "moses", "--jobs", "1", pairs=[names, names]).returncode == 0
    assert lines(tmp_path / "out.en") == ["It 's so .", "", "OK"] * 2
    assert lines(tmp_path / "out.de") == ["Ist so !", "was", "OK"] * 2
    assert lines(tmp_path / "out.raw.en") == ["It\u2019s so.", "", "OK"] * 2
    assert lines(tmp_path / "out.raw.de") == ["Ist so!", "was", "OK"] * 2
    assert left(tmp_path) == ["out.de", "out.en", "out.raw.de", "out.raw.en", "out.report.txt"]


def test_raw_text_beside_cleaned_text(tmp_path: Path) -> None:
    names = pair(tmp_path, "One.\nOK\n\nTwo.\n", "Eins.\nOK\nleer\nZwei.\n")
    assert run(tmp_path, "--clean", "--keep-equal", "--raw", "--tokenize", "moses", pairs=[names]).returncode == 0
    assert lines(tmp_path / "out.en") == ["One .", "OK", "Two ."]
    assert lines(tmp_path / "out.raw.de") == ["Eins.", "OK", "Zwei."]


@pytest.mark.parametrize(
    ("limits", "source", "target", "fault"),
    [
        (Limits(), "a", "b", None),
        (Limits(), " ", "b", "one side is empty"),
        (Limits(longest=3), "a b c", "d", None),
        (Limits(longest=3), "d", "a b c d", "more than 3 tokens"),
        (Limits(ratio=1.5), "a b", "c d e", None),
        (Limits(ratio=1.5), "a b c d", "c d", "one side is more than 1.5 times as long as the other"),
        (Limits(unequal=True), "a b", "a b", "both sides are the same"),
        (Limits(unequal=True), "a b", "A b", None),
    ],
)
def test_limits(limits: Limits, source: str, target: str, fault: str | None) -> None:
    assert limits.fault(source, target) == limits.fault(target, source) == fault


@pytest.mark.parametrize(("source", "target", "jobs"), [(4999, 5003, "2"), (5003, 4999, "1"), (0, 1, "1")])
def test_sides_of_different_length(source: int, target: int, jobs: str, tmp_path: Path) -> None:
    names = pair(tmp_path, "a\n" * source, "b\n" * target)
    for before in ([], ["out.de", "out.en"]):
        for name in before:
            (tmp_path / name).write_text("older\n")
        result = run(tmp_path, "--clean", "--jobs", jobs, pairs=[names])
        assert result.returncode == 1
        short, long = sorted(zip((source, target), names, strict=True))
        assert f"{short[1]} has {short[0]:,} lines and {long[1]} has {long[0]:,};" in result.stderr
        assert result.stderr.count("\n") == 1
        assert left(tmp_path) == before
        assert all((tmp_path / name).read_text() == "older\n" for name in before)


def test_nothing_is_left(tmp_path: Path) -> None:
    empty, same = pair(tmp_path, "", ""), pair(tmp_path, "a\n", "a\n", "same")
    for names, message in (
        (empty, f"{empty[0]} and {empty[1]} are empty"),
        (same, f"no pair of {same[0]} and {same[1]}"),
    ):
        result = run(tmp_path, "--clean", pairs=[names])
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert message in result.stderr
        assert left(tmp_path) == []


def text_of(count: int) -> tuple[str, str]:
    chance = random.Random(3)
    words = ["\u201eHaus\u201c", "cat,", "a\u2013b", "naïve", "x&y", "$5", "well-known", "l'eau", "Ärger."]
    sides = ["".join(" ".join(chance.choices(words, k=chance.randrange(9))) + "\n" for _ in range(count)) for _ in "ab"]
    return sides[0], sides[1]


def test_the_same_from_any_number_of_processes(tmp_path: Path) -> None:
    names = pair(tmp_path, *text_of(2500))
    for jobs in "12":
        options = ("--clean", "--tokenize", "moses", "--ratio", "2", "--longest", "12", "--jobs", jobs)
        assert run(tmp_path, *options, pairs=[names], output=f"out{jobs}").returncode == 0
    for part in ("en", "de", "report.txt"):
        assert len({(tmp_path / f"out{jobs}.{part}").read_bytes() for jobs in "12"}) == 1, part


def _killed(chunk: list[tuple[str, str]]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_corpus, "_tokenize", _killed)
    (tmp_path / "out.en").write_text("older\n")
    names = pair(tmp_path, "a\n" * 9, "b\n" * 9)
    with pytest.raises(UserError, match="one of 2 processes was killed"):
        clean_corpus.clean_corpus([names], ["en", "de"], str(tmp_path / "out"), "none", None, raw=True, jobs=2)
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
    ours = clean_corpus.tokenizer("moses", language)
    plugin = MosesNormalizedTokenizer(Namespace(source_lang=language, target_lang="en"))
    for sentence in SENTENCES[language]:
        tokens = ours(sentence)
        assert tokens == plugin.encode(sentence)
        assert tokens != sentence
        assert not any(sign in tokens for sign in ("&amp;", "&lt;", "&#124;", "&quot;", "@-@"))


def test_lower_case_as_in_the_scripts_for_iwslt() -> None:
    """Punctuation is not normalized, and what XML would read otherwise is escaped."""
    tokens = clean_corpus.tokenizer("moses-lower", "de")("„Das ist 'was“, sagte Ärzte & mehr.")
    assert tokens == "„ das ist &apos; was “ , sagte ärzte &amp; mehr ."


def test_chinese_in_words_is_written_as_it_is_everywhere_else() -> None:
    chinese = clean_corpus.tokenizer("unsegmented", "zh")
    assert chinese("我 喜欢 GPU 2017 年 的 书 。") == "我喜欢 GPU 2017 年的书。"
    assert clean_corpus.tokenizer("unsegmented", "en")("a b") == "a b"
