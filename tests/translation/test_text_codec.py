"""Which tokenizer and which subwords a model's text goes through, and what is refused."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from fairseq.data import Dictionary
from fairseq.data.encoders.byte_utils import BYTE_TO_BCHAR
from omegaconf import DictConfig, OmegaConf

from fairseq_compat import UserError
from fairseq_depthwise.translation import text_codec
from fairseq_depthwise.translation.text_codec import TextCodec, settings_for
from fairseq_depthwise.translation.translation_options import TextOptions

SENTENCES = ["The cat isn't here.", "the dog sleeps", "the cat sleeps on the mat"]


def dictionary_of(*symbols: str) -> Dictionary:
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


WORDS, BPE, PIECES = dictionary_of("the", "cat"), dictionary_of("the", "c@@"), dictionary_of("\u2581the", "c")


@pytest.fixture
def codes(tmp_path: Path) -> str:
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\nt h\nth e</w>\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> str:
    prefix = str(tmp_path_factory.mktemp("pieces") / "spm")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_prefix=prefix, vocab_size=35, hard_vocab_limit=False, minloglevel=2
    )
    return f"{prefix}.model"


def recorded(**parts: Any) -> DictConfig:
    return OmegaConf.create({"tokenizer": None, "bpe": None, **parts}, flags={"allow_objects": True})


def codec(
    options: TextOptions, cfg: DictConfig | None = None, dictionary: Dictionary = WORDS, data: str = "data-bin"
) -> TextCodec:
    return TextCodec(settings_for(options, cfg or recorded(), dictionary, path="best.pt", data=data), "en", "de")


@pytest.mark.parametrize("how", ["given", "recorded", "codes alone"])
def test_moses_and_subword_nmt(how: str, codes: str) -> None:
    options, cfg = TextOptions(), recorded()
    if how == "recorded":
        cfg = recorded(
            tokenizer={"_name": "moses", "source_lang": "en", "target_lang": "en", "moses_no_escape": True},
            bpe={"_name": "subword_nmt", "bpe_codes": codes, "bpe_separator": "@@"},
        )
    else:
        options = TextOptions("moses", "subword_nmt" if how == "given" else None, bpe_codes=codes)
    found = codec(options, cfg, BPE)
    quote = "'" if how == "recorded" else "&@@ a@@ p@@ o@@ s@@ ;@@ "
    assert found.encode("the it's").startswith(f"the i@@ t {quote}")
    assert found.decode("the c@@ a@@ t , and &quot; .") == 'the cat, and ".'


def test_languages_are_the_direction() -> None:
    settings = settings_for(TextOptions("moses"), recorded(), WORDS, path="best.pt", data="data-bin")
    english, french = TextCodec(settings, "en", "fr"), TextCodec(settings, "fr", "en")
    assert english.encode("l'homme") == "l &apos;homme"
    assert french.encode("l'homme") == "l&apos; homme"
    assert french.decode("cat &apos;s") == "cat's"
    assert english.decode("cat &apos;s") != "cat's"


def test_a_translation_is_one_line() -> None:
    assert codec(TextOptions(bpe="bytes")).decode(f"a {BYTE_TO_BCHAR[10]} b") == "a b"


def test_memory_does_not_grow_with_directions_and_words(codes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_codec, "_MOST_WORDS", 10)
    settings = settings_for(TextOptions(bpe_codes=codes), recorded(), BPE, path="best.pt", data="data-bin")
    first, second = TextCodec(settings, "en", "fr"), TextCodec(settings, "fr", "en")
    for number in range(100):
        assert first.encode(f"the {number} the") == second.encode(f"the {number} the")
    assert len(settings.subwords.bpe.cache) < 20
    assert max(map(len, first.encode("a" * 2500).replace("@@ ", "").split())) == 1000


def test_sentencepiece(pieces: str) -> None:
    for options, cfg in (
        (TextOptions(sentencepiece_model=pieces), recorded()),
        (TextOptions(), recorded(bpe={"_name": "sentencepiece", "sentencepiece_model": pieces})),
    ):
        found = codec(options, cfg, PIECES)
        tokens = found.encode("the cat sleeps")
        assert tokens.startswith("\u2581")
        assert found.decode(tokens) == "the cat sleeps"


def test_recorded_file_beside_the_data(codes: str, tmp_path: Path) -> None:
    cfg = recorded(bpe=Namespace(_name="subword_nmt", bpe_codes="/gone/codes", bpe_separator="@@"))
    assert codec(TextOptions(), cfg, BPE, data=str(tmp_path / "data-bin")).encode("the") == "the"


def test_given_goes_before_recorded(codes: str) -> None:
    cfg = recorded(tokenizer={"_name": "moses"}, bpe={"_name": "subword_nmt", "bpe_codes": "gone"})
    assert codec(TextOptions(bpe_codes=codes), cfg, BPE).encode("the.") == "the ."
    assert codec(TextOptions("none", bpe_codes=codes), cfg, BPE).encode("the.") == "th@@ e@@ ."
    assert codec(TextOptions(tokenized=True), cfg, BPE).encode("c@@ at.") == "c@@ at."
    assert codec(TextOptions(bpe="none"), cfg, BPE).encode("the.") == "the ."


@pytest.mark.parametrize(
    ("options", "dictionary", "said"),
    [
        ({"tokenizer": "mosses"}, WORDS, "--tokenizer mosses"),
        ({"bpe_codes": "nowhere"}, WORDS, "--bpe-codes nowhere"),
        # The model was trained with subwords that nothing is known of.
        ({}, BPE, "best.pt .*--bpe-codes"),
        ({}, PIECES, "best.pt .*--sentencepiece-model"),
    ],
)
def test_refused(options: dict[str, str], dictionary: Dictionary, said: str, codes: str) -> None:
    given = {name: value.format(codes=codes) for name, value in options.items()}
    with pytest.raises(UserError, match=said):
        codec(TextOptions(**given), None, dictionary)
