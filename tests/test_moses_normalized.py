"""``--tokenizer moses_normalized``: tokens as in text that was prepared for training, and back to text."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.data.encoders import build_tokenizer

from fairseq_depthwise.moses_normalized import MosesNormalizedTokenizer


def tokenizer(source: str | None, target: str | None) -> MosesNormalizedTokenizer:
    found = build_tokenizer(Namespace(tokenizer="moses_normalized", source_lang=source, target_lang=target))
    assert isinstance(found, MosesNormalizedTokenizer)
    return found


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "\u201cIt\u2019s a well-known fact,\u201d he said\u2026", '" It \'s a well-known fact , " he said ...'),
        ("en", "AT&T | <b> [x] $5.50", "AT & T | < b > [ x ] $ 5.50"),
        ("de", "\u201eJa\u201c, z.B. am 1. Mai\u00a0\u2026", '" Ja " , z.B. am 1. Mai ...'),
        ("fr", "\u00ab\u00a0L\u2019homme\u00a0\u00bb d'ici ?", "\" L' homme \" d' ici ?"),
        ("cs", "\u201eTo je ono,\u201c řekl.", '" To je ono , " řekl .'),
    ],
)
def test_encode(language: str, text: str, tokens: str) -> None:
    assert tokenizer(language, "en").encode(text) == tokens


@pytest.mark.parametrize(
    ("language", "tokens", "text"),
    [
        ("en", '" It \'s a well-known fact , " he said .', '"It\'s a well-known fact," he said.'),
        ("en", "AT & T | &amp; stays [ x ]", "AT & T | &amp; stays [x]"),
        ("de", "Ja , das ist 1 - 2 .", "Ja, das ist 1 - 2."),
        ("fr", "L' homme qu' on aime .", "L'homme qu'on aime."),
    ],
)
def test_decode(language: str, tokens: str, text: str) -> None:
    assert tokenizer("xx" if language == "en" else "en", language).decode(tokens) == text
