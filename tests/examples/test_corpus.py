"""The demo corpus: reproducible, split properly, and without slips that show in its text."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from make_corpus import main, word_forms

CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
SIZES = {"train": 12000, "valid": 400, "test": 400}
LANGUAGES = ("en", "de")


def lines(part: str, language: str) -> list[str]:
    return (CORPUS / f"{part}.{language}").read_text(encoding="utf-8").splitlines()


def test_the_committed_files_are_what_the_program_writes(tmp_path: Path) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in CORPUS.iterdir() if path.name != "README.md"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_parts_have_their_size_and_share_no_sentence(language: str) -> None:
    sentences = {part: lines(part, language) for part in SIZES}
    assert {part: len(found) for part, found in sentences.items()} == SIZES
    assert len(set().union(*sentences.values())) == sum(SIZES.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_held_out_word_is_frequent_in_training(language: str) -> None:
    counts = Counter(word for line in lines("train", language) for word in word_forms(line))
    held_out = {word for part in ("valid", "test") for line in lines(part, language) for word in word_forms(line)}
    assert min(counts[word] for word in held_out) >= 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_spelling_and_length(language: str) -> None:
    for line in lines("train", language):
        assert re.fullmatch(r"[A-ZÄÖÜ]([a-zA-ZäöüßÄÖÜ'-]|,? (?! ))*[.?]", line), line
        assert 3 <= len(line.split()) <= 16, line


def test_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing = tmp_path / "valid.de"
    existing.write_text("mine\n", encoding="utf-8")
    assert main(["--output", str(tmp_path), "--train", "4000"]) == 1
    assert "valid.de" in capsys.readouterr().err
    assert existing.read_text(encoding="utf-8") == "mine\n"
    assert list(tmp_path.iterdir()) == [existing]
    # With --force a file is replaced, and a link to one elsewhere is not.
    existing.rename(tmp_path / "elsewhere")
    existing.symlink_to("elsewhere")
    assert main(["--output", str(tmp_path), "--train", "4000", "--force"]) == 1
    assert "symbolic link" in capsys.readouterr().err


def test_force_overwrites_and_sizes_and_seed_count(tmp_path: Path) -> None:
    options = ["--output", str(tmp_path), "--train", "4000", "--valid", "20", "--test", "30", "--force"]
    texts = []
    for seed in ("1", "2"):
        assert main([*options, "--seed", seed]) == 0
        texts.append((tmp_path / "train.en").read_text(encoding="utf-8"))
    assert texts[0] != texts[1]
    assert [len((tmp_path / f"{part}.de").read_text().splitlines()) for part in SIZES] == [4000, 20, 30]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--train", "10"), ("--train", "50001"), ("--valid", "0"), ("--test", "-3"), ("--seed", "-1"), ("--seed", "x")],
)
def test_refuses_bad_numbers(option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path), option, value])
    message = capsys.readouterr().err
    assert option in message
    assert value in message
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--output", str(tmp_path / "file" / "corpus"), "--train", "4000"]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_an_empty_output_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for output in ("", "."):
        with pytest.raises(SystemExit):
            main(["--output", output])
    assert not list(tmp_path.iterdir())
