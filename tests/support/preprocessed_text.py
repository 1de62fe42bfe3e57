"""A folder laid out as the unpacked ``wmt16_en_de.tar.gz``: raw text, Moses tokens with entities of HTML, subwords."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

from corpus_mirror import Pairs, own_pairs, text
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

#: Ends of a test set's sentences: what Moses escapes, typographic quotes that it leaves, compounds.
_ENDS = [
    ('He calls it "her well-known jacket".', 'Er nennt es "ihre Mode-Jacke".'),
    ("It\u2019s a three-year-old\u2019s & mine.", "Das gehört \u2013 ja \u2013 dem Fünf-Jahres-Kind & mir."),
]


def build(folder: Path, *, split_hyphens: bool = False) -> Path:
    """Write a small training set and three test sets; with ``split_hyphens`` compounds are three tokens."""
    folder.mkdir(parents=True)
    sets = {f"newstest{2012 + number}": _test_set(1000 + 12 * number) for number in range(3)}
    train = [*own_pairs("en", "de", 0, 180), *_test_set(300)]
    tokens = {
        name: [tuple(map(_tokenizer(split_hyphens), ("en", "de"), pair)) for pair in pairs]
        for name, pairs in {"train": train, **sets}.items()
    }
    codes = io.StringIO()
    learn_bpe([word for pair in tokens["train"] for word in " ".join(pair).split(" ")], codes, 150)
    (folder / "bpe.32000").write_text(codes.getvalue(), encoding="utf-8")
    subwords = BPE(io.StringIO(codes.getvalue()))
    for side, language in enumerate(("en", "de")):
        for name, pairs in tokens.items():
            form = "tok.clean.bpe.32000" if name == "train" else "tok.bpe.32000"
            split = (subwords.process_line(pair[side]) for pair in pairs)
            (folder / f"{name}.{form}.{language}").write_bytes(text(split))
        for name, raw in sets.items():
            (folder / f"{name}.tok.{language}").write_bytes(text(pair[side] for pair in tokens[name]))
            (folder / f"{name}.{language}").write_bytes(text(pair[side] for pair in raw))
    return folder


def _test_set(start: int) -> Pairs:
    pairs = []
    for number, pair in enumerate(own_pairs("en", "de", start, 12)):
        end = _ENDS[number % len(_ENDS)]
        pairs.append((f"{pair[0]} {end[0]}", f"{pair[1]} {end[1]}"))
    return pairs


def _tokenizer(split_hyphens: bool) -> Callable[[str, str], str]:
    """Return ``tokenizer.perl -l LANGUAGE``, followed by the compound split of Stanford's corpora."""

    def tokenized(language: str, line: str) -> str:
        tokens = str(MosesTokenizer(language).tokenize(line, return_str=True))
        return re.sub(r"(?<=\S)-(?=\S)", " ##AT##-##AT## ", tokens) if split_hyphens else tokens

    return tokenized
