"""Models of several languages: each direction is what a model loaded for it alone says, and others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from multilingual_checkpoints import multilingual_checkpoint, multilingual_data
from probe_checkpoints import checkpoint_of, data_in

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.translation.translator import BeamOptions, LoadedTranslator, TranslatorOptions

LINES = ["w0 w1 w2", "w3", "", "w4 w5 w6 w7 w0"]
DIRECTIONS = [("en", "l0"), ("l0", "en"), ("en", "l1"), ("l1", "l0")]
TOKENS = {
    "encoder": ["--encoder-langtok", "tgt"],
    "both": ["--encoder-langtok", "src", "--decoder-langtok"],
    "instead of ends": ["--encoder-langtok", "src", "--decoder-langtok", "--lang-tok-replacing-bos-eos"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return multilingual_data(tmp_path_factory.mktemp("many") / "data-bin")


def loaded(path: str, data: str, **languages: str) -> LoadedTranslator:
    return LoadedTranslator(path, data=data, options=TranslatorOptions(beam=BeamOptions(2, 0.6, 8)), **languages)


@pytest.mark.parametrize("tokens", TOKENS)
def test_one_model_for_all_directions(tokens: str, data: str, tmp_path: Path) -> None:
    path = multilingual_checkpoint(tmp_path, *TOKENS[tokens])
    together = loaded(path, data, source_lang="en", target_lang="l0")
    found = {pair: together.translate(LINES, source_lang=pair[0], target_lang=pair[1]) for pair in DIRECTIONS}
    for (source, target), translations in found.items():
        alone = loaded(path, data, source_lang=source, target_lang=target)
        assert alone.translate(LINES) == translations
    assert together.translate(LINES) == found["en", "l0"]
    # The model was not trained, but it reads which language is meant.
    assert len({tuple(lines) for lines in found.values()}) > 1


def test_direction_must_be_said_where_there_are_several(data: str, tmp_path: Path) -> None:
    path = multilingual_checkpoint(tmp_path, *TOKENS["encoder"])
    for given in ({}, {"source_lang": "en"}):
        with pytest.raises(UserError, match=r"3 directions; .* en-l0 l0-en en-l1"):
            loaded(path, data, **given)
    assert loaded(path, data, source_lang="l0").languages == ("l0", "en")
    assert loaded(path, data, target_lang="l1").languages == ("en", "l1")
    assert sorted(loaded(path, data, target_lang="l1").known_languages) == ["en", "l0", "l1"]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_model_of_one_direction(recorded: bool, tmp_path: Path) -> None:
    path, data = checkpoint_of(tmp_path, "sdt_transformer"), data_in(tmp_path / "data-bin", train=LINES[:2])
    if not recorded:  # the training took its languages from the data
        state = checkpoints.load_checkpoint(path)
        state["cfg"]["task"]["source_lang"] = state["cfg"]["task"]["target_lang"] = None
        checkpoints.save(state, path)
    translator = loaded(path, data, source_lang="src", target_lang="tgt")
    assert (translator.languages, translator.known_languages) == (("src", "tgt"), [])
    with pytest.raises(UserError, match=r"--source-lang tgt, --target-lang src: .* from src to tgt"):
        loaded(path, data, source_lang="tgt", target_lang="src")
    with pytest.raises(UserError, match=r"--target-lang en: .* from src to tgt"):
        loaded(path, data).translate(LINES, target_lang="en")
