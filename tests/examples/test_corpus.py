"""The demo corpus: reproducible, split properly, and without slips that show in its text."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from make_corpus import main, word_forms
from verbs import VERBS

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = EXAMPLES / "quickstart" / "corpus"
LANGUAGES = ("en", "de")
SPLITS = ("train", "valid", "test")


def lines(split: str, language: str) -> list[str]:
    return (CORPUS / f"{split}.{language}").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    assert main(["--output", str(folder)]) == 0
    return folder


def test_regeneration_gives_the_committed_files(regenerated: Path) -> None:
    for split in SPLITS:
        for language in LANGUAGES:
            name = f"{split}.{language}"
            assert (regenerated / name).read_bytes() == (CORPUS / name).read_bytes(), name
    assert len(list(regenerated.iterdir())) == 6, "temporary files were left behind"


def test_sizes() -> None:
    for language in LANGUAGES:
        assert [len(lines(split, language)) for split in SPLITS] == [12000, 400, 400]
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1_500_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_occurs_twice(language: str) -> None:
    sentences = [line for split in SPLITS for line in lines(split, language)]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_held_out_word_is_frequent_in_training(language: str) -> None:
    counts = Counter(word for line in lines("train", language) for word in word_forms(line))
    held_out = {word for split in ("valid", "test") for line in lines(split, language) for word in word_forms(line)}
    assert min(counts[word] for word in held_out) >= 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_spelling_and_length(language: str) -> None:
    for line in lines("train", language):
        assert line[0].isupper(), line
        assert line[-1] in ".?", line
        assert line.isprintable(), line
        assert "  " not in line, line
        assert " ," not in line, line
        assert ",," not in line, line
        assert 3 <= len(line.split()) <= 16, line


# The command.


def test_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing = tmp_path / "valid.de"
    existing.write_text("mine\n", encoding="utf-8")
    assert main(["--output", str(tmp_path), "--train", "4000"]) != 0
    message = capsys.readouterr().err
    assert "valid.de exists already" in message
    assert message.count("\n") == 1
    assert existing.read_text(encoding="utf-8") == "mine\n"
    assert list(tmp_path.iterdir()) == [existing]


def test_force_overwrites_and_sizes_and_seed_count(tmp_path: Path) -> None:
    sizes = ["--train", "4000", "--valid", "20", "--test", "30"]
    assert main(["--output", str(tmp_path), *sizes]) == 0
    first = (tmp_path / "train.en").read_text(encoding="utf-8")
    assert main(["--output", str(tmp_path), *sizes, "--seed", "2", "--force"]) == 0
    second = (tmp_path / "train.en").read_text(encoding="utf-8")
    assert first != second
    assert [len((tmp_path / f"{split}.de").read_text().splitlines()) for split in SPLITS] == [4000, 20, 30]


@pytest.mark.parametrize(
    ("option", "value", "valid_range"),
    [
        ("--train", "10", "4000 to 50000"),
        ("--train", "50001", "4000 to 50000"),
        ("--valid", "0", "1 to 2000"),
        ("--test", "-3", "1 to 2000"),
        ("--seed", "-1", "0 to 4294967295"),
    ],
)
def test_refuses_bad_numbers(
    option: str, value: str, valid_range: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path), option, value]) != 0
    message = capsys.readouterr().err
    assert f"{option} must be from {valid_range}, not {value}" in message
    assert list(tmp_path.iterdir()) == []


def test_runs_as_a_script_and_reports_an_unusable_folder(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    command = [sys.executable, str(EXAMPLES / "grammar" / "make_corpus.py"), "--output", str(not_a_folder / "corpus")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert finished.stderr.startswith("make_corpus: ")
    assert "Traceback" not in finished.stderr


def test_participles_and_prefixes_are_where_they_belong() -> None:
    """In a main clause without subordination nothing follows a participle."""
    participles = {entry.german.participle for entry in VERBS if not entry.german.preterite_singular}
    ambiguous = {entry.german.third_singular for entry in VERBS} | {entry.german.infinitive for entry in VERBS}
    for line in lines("train", "de"):
        if "," in line or " und " in line:
            continue
        for word in line.rstrip(".?").split()[:-1]:
            assert word not in participles - ambiguous, line


def test_no_contraction_is_missed() -> None:
    for line in lines("train", "de"):
        # At the start of a clause it is a relative pronoun: "das Kind, an das ich denke".
        for part in f" {line.lower()}".split(","):
            for split_form in (" in das ", " zu dem ", " zu der ", " an das ", " von dem "):
                assert split_form not in part[3:], line


def test_umlauts_are_composed_and_no_eszett_is_missing() -> None:
    text = "".join(lines("train", "de"))
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÜ .,?")
