"""Patches of dictionaries, subwords and embeddings: what is right, and what is refused by file and line."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from fairseq import utils
from fairseq.data import Dictionary, data_utils, encoders
from omegaconf import MissingMandatoryValue, OmegaConf
from torch import nn

from fairseq_compat import UserError
from fairseq_compat.errors import mistake

# Dictionaries.


def test_a_dictionary_with_symbols_twice_is_read_as_it_was_written(tmp_path: Path) -> None:
    written, path = tmp_path / "written.txt", tmp_path / "dict.txt"
    lines = [f"{symbol} 0 #fairseq:overwrite" for symbol in ("<s>", "<pad>", "</s>", "<unk>")]
    written.write_text("\n".join([*lines, "a 3", "\u00a0 2", "a 1 #fairseq:overwrite", "#fairseq:overwrite 1\n"]))
    dictionary = Dictionary.load(str(written))
    assert (dictionary.index("<s>"), dictionary.index("a"), len(dictionary)) == (4, 10, 12)
    dictionary.save(str(path))
    read = Dictionary.load(str(path))
    assert vars(read) == vars(dictionary)
    assert path.read_text() == written.read_text()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a 2\nb 1\na 1\n", "'a' in line 3"),
        (b"a 2\n<unk> 1\n", "'<unk>' in line 2"),
        (b"a\t-2.5\n", "line 1 is '"),
        (b"a 2\n\nb 1\n", "line 2 is ''"),
        (b"a\n", "line 1 is 'a'"),
        (b"a 2.0\n", "line 1 is 'a 2.0'"),
        (b"a 2\ncaf\xe9 1\n", "line 2 has the byte 0xe9"),
    ],
)
def test_what_is_no_dictionary(content: bytes, named: str, tmp_path: Path) -> None:
    path = tmp_path / "dict.de.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"dict\.de\.txt .*{named}"):
        Dictionary.load(str(path))


def test_a_first_symbol_may_begin_like_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "dict.txt"
    dictionary = Dictionary()
    dictionary.add_symbol("\ufeffa")
    dictionary.save(str(path))
    assert Dictionary.load(str(path)).symbols == dictionary.symbols


# Subwords.


@pytest.fixture(scope="module")
def model_with_bytes(tmp_path_factory: pytest.TempPathFactory) -> str:
    prefix = tmp_path_factory.mktemp("pieces") / "spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["red dog runs", "blue cat runs"] * 5), model_prefix=str(prefix), vocab_size=290,
        model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return f"{prefix}.model"


def pieces_of(model: str) -> Any:
    given = {"sentencepiece_model": model, "sentencepiece_enable_sampling": False, "sentencepiece_alpha": None}
    return encoders.build_bpe(Namespace(bpe="sentencepiece", **given))


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("\u2581red <0xC3> <0x9F> \u2581dog", "red\u00df dog"),
        ("\u2581red <0xC3> \u2581dog", "red\ufffd dog"),
        ("\u2581red <0x0A> \u2581dog", "red  dog"),
        ("\u2581red <unk> \u2581dog", "red<unk> dog"),
        ("\u2581red \ue000 <unk> \u2581dog", "red\ue000<unk> dog"),
        ("__de__ \u2581red \u2581notthere s", "__de__ red notthere" + "s"),
        ("\u2581dog", "dog"),
        ("", ""),
    ],
)
def test_bytes_of_a_letter_are_the_letter(tokens: str, text: str, model_with_bytes: str) -> None:
    assert pieces_of(model_with_bytes).decode(tokens) == text
    assert data_utils.post_process(tokens, "sentencepiece") == text


def test_text_of_a_model_with_bytes_comes_back(model_with_bytes: str) -> None:
    pieces = pieces_of(model_with_bytes)
    for text in ("red dog", "\u20ac 5 for the Stra\u00dfe", "\U0001f600", "<unk> <0xC3>", "an \uf8ff"):
        assert pieces.decode(pieces.encode(text)) == text


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"w 1 50\nw 2 40\n", "--bpe-codes .* line 1"),
        (b"#version: 0.2\nw 1\n\nw 2\n", "--bpe-codes .* line 3"),
        (b"w 1\n\xe4 2\n", "codes .* line 2 has the byte 0xe4"),
    ],
)
def test_codes_of_other_programs(content: bytes, named: str, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_bytes(content)
    with pytest.raises(UserError, match=named):
        encoders.build_bpe(Namespace(bpe="subword_nmt", bpe_codes=str(path), bpe_separator="@@"))


def test_a_model_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a b c\n")
    with pytest.raises(UserError, match="--sentencepiece-model"):
        encoders.build_bpe(Namespace(bpe="sentencepiece", sentencepiece_model=str(path)))


def test_a_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastBPE", None)
    path = tmp_path / "codes"
    path.write_text("w 1 50\n", encoding="utf-8")
    with pytest.raises(ImportError) as raised:
        encoders.build_bpe(Namespace(bpe="fastbpe", bpe_codes=str(path)))
    assert "pip install fastBPE" in str(mistake(raised.value))


def test_an_option_that_is_missing() -> None:
    options = OmegaConf.structured(encoders.sentencepiece_bpe.SentencepieceConfig)
    with pytest.raises(MissingMandatoryValue) as raised:
        encoders.build_bpe(OmegaConf.merge(options, {"_name": "sentencepiece"}))
    assert "--sentencepiece-model" in str(mistake(raised.value))


# Embeddings.


@pytest.mark.parametrize("header", ["", "3 2\n"], ids=["without header", "with header"])
def test_embeddings_of_all_words(header: str, tmp_path: Path) -> None:
    path = tmp_path / "embeddings.txt"
    path.write_bytes(f"{header}a 1 2\r\nnew york 3 4 \nb\u00e4r\u2028 5 -6e0\n".encode())
    embeddings = utils.parse_embedding(str(path))
    expected = {"a": [1, 2], "new york": [3, 4], "b\u00e4r\u2028": [5, -6]}
    assert {word: values.tolist() for word, values in embeddings.items()} == expected
    dictionary = Dictionary()
    dictionary.add_symbol("a")
    table = utils.load_embedding(embeddings, dictionary, nn.Embedding(5, 2))
    assert table.weight[4].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"a 1 2\nb 3\n", 2), (b"2 2\na 1\n", 2), (b"a 1 2\nb 3 x\n", 2), (b"a\n", 1), (b"a 1 2\n\xe4 3 4\n", 2)],
)
def test_what_are_no_embeddings(content: bytes, line: int, tmp_path: Path) -> None:
    path = tmp_path / "embeddings.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"embeddings\.txt .*line {line} "):
        utils.parse_embedding(str(path))
