"""back_translate.sh and distill.sh: from text to a mixture that train.sh trains on, and the pairs that are left out."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_mirror import own_pairs
from recipe_runs import Work, files_of, lines, small, times_of

pytestmark = [pytest.mark.xdist_group("recipes"), pytest.mark.long]

_UPDATES = [*small(), "--max-update=2", "--save-interval-updates=2"]


@pytest.fixture(scope="module")
def reverse(prepared: Callable[[str], Work]) -> tuple[Work, Path]:
    """A recipe's folder, and a model that goes from its target to its source language."""
    work = prepared("multi30k")
    work.train("transformer", "--source-lang=de", "--target-lang=en", *_UPDATES, RUN="reverse")
    return work, work.folder / "systems" / "reverse" / "checkpoints" / "checkpoint_last.pt"


def german(tmp_path: Path) -> list[str]:
    """Two texts with 30 sentences, an empty line and one of too many words."""
    sentences = [target for _, target in own_pairs("en", "de", 700, 30)]
    (tmp_path / "first.de").write_text("".join(f"{line}\n" for line in [*sentences[:20], "", "Hund " * 41]))
    (tmp_path / "second.de.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in sentences[20:]).encode()))
    return [str(tmp_path / "first.de"), str(tmp_path / "second.de.gz")]


def back_translated(work: Work, tmp_path: Path, *arguments: object, status: int = 0, **environment: object) -> str:
    loose = {"LONGEST": 40, "RATIO": 99, "COPIED": 1, "MIXED": tmp_path / "mixed", **environment}
    return work.run("back_translate", *arguments, status=status, **loose).stderr


@pytest.mark.parametrize("method", ["beam", "sampling"])
@pytest.mark.long
def test_from_text_to_a_training(reverse: tuple[Work, Path], tmp_path: Path, method: str) -> None:
    work, model = reverse
    texts, mixed = german(tmp_path), tmp_path / "mixed"
    given = [model, *texts, "--", "--cpu", "--max-len-b", "12", "--data", work.folder / "data-bin"]
    before = files_of(work.folder / "data-bin")
    said = back_translated(work, tmp_path, *given, METHOD=method, UPSAMPLE=2, BEAM=2)
    assert "32 sentences read, 30 kept; 1 left out: empty; 1 left out: more than 40 words" in said
    assert "30 pairs read" in said
    parallel = {language: lines(work.folder / "text" / f"bpe.train.{language}") for language in ("en", "de")}
    count = len(parallel["en"])
    found = {language: lines(mixed / "text" / f"bpe.train.{language}") for language in ("en", "de")}
    for language in ("en", "de"):
        assert found[language][: 2 * count] == [*parallel[language]] * 2
    synthetic = list(zip(found["en"][2 * count :], found["de"][2 * count :], strict=True))
    assert synthetic
    assert all(source.startswith("<BT> ") and "<BT>" not in target for source, target in synthetic)
    # The tag is a token of its own, and all others have the numbers that they had.
    for language in ("en", "de"):
        old, new = (lines(folder / "data-bin" / f"dict.{language}.txt") for folder in (work.folder, mixed))
        assert [entry for entry in new if not entry.startswith("<BT> ")] == [
            entry for place, entry in enumerate(old) if place >= len(new) or not new[place].startswith("<BT> ")
        ]
        assert sum(entry.startswith("<BT> ") for entry in new) == 1
    after = files_of(mixed / "data-bin")
    for name in ("valid.en-de.en.bin", "test.en-de.de.bin", "bpe.codes", "tests.txt"):
        assert after[name] == before[name]
    assert files_of(work.folder / "data-bin") == before
    times = times_of(mixed)
    assert back_translated(work, tmp_path, *given, METHOD=method, UPSAMPLE=2, BEAM=2) == ""
    assert times_of(mixed) == times
    message = back_translated(work, tmp_path, *given, METHOD=method, UPSAMPLE=3, BEAM=2, status=1)
    assert "UPSAMPLE=3" in message
    if method == "beam":
        trained = Work("multi30k", mixed, work.environment)
        trained.train("transformer", *_UPDATES)
        assert "test_2016_flickr" in trained.run("evaluate", "transformer", MAX_TOKENS=600).stdout


@pytest.mark.parametrize(
    ("words", "environment", "named"),
    [
        ("", {}, "give a model and at least one text"),
        ("{folder}/none.pt {text}", {}, "none.pt"),
        ("{model} {text}", {"UPSAMPLE": "0"}, "UPSAMPLE=0"),
        ("{model} {text}", {"MIXED": "{work}/"}, "MIXED="),
        ("{model} {folder}/none.de", {}, "none.de"),
        ("{model} {folder}/empty", {}, "empty"),
    ],
)
def test_refused(
    words: str, environment: dict[str, str], named: str, reverse: tuple[Work, Path], tmp_path: Path
) -> None:
    work, model = reverse
    text, *_ = german(tmp_path)
    (tmp_path / "empty").write_text("\n\n")
    places = {"model": model, "text": text, "folder": tmp_path, "work": work.folder}
    given = {name: value.format(**places) for name, value in environment.items()}
    message = back_translated(work, tmp_path, *words.format(**places).split(), status=1, **given)
    assert named in message


def test_a_text_with_other_lines(reverse: tuple[Work, Path], tmp_path: Path) -> None:
    """The first attempt ends with an empty text; what it has begun is of that text."""
    work, model = reverse
    text = tmp_path / "text"
    text.write_text("\n")
    assert "no sentence" in back_translated(work, tmp_path, model, text, status=1)
    text.write_text("eine Katze\n")
    assert "MONOLINGUAL_DIGEST=" in back_translated(work, tmp_path, model, text, status=1)
    assert "OPTIONS=--beam 1" in back_translated(work, tmp_path, model, text, "--", "--beam", "1", status=1)


def test_distillation(prepared: Callable[[str], Work], tmp_path: Path) -> None:
    work, distilled = prepared("multi30k"), tmp_path / "distilled"
    work.train("transformer", *_UPDATES, RUN="teacher")
    model = work.folder / "systems" / "teacher" / "checkpoints" / "checkpoint_last.pt"
    given = [model, "--", "--cpu", "--max-len-b", "12"]
    work.run("distill", *given, BEAM=2, RATIO=99, UPSAMPLE=1, MIXED=distilled)
    parallel, found = (
        [lines(folder / "text" / f"bpe.train.{language}") for language in ("en", "de")]
        for folder in (work.folder, distilled)
    )
    count = len(parallel[0])
    assert [side[:count] for side in found] == parallel
    assert set(found[0][count:]) <= set(parallel[0])
    assert len(found[1]) == len(found[0]) > count
    assert not set(found[1][count:]) & set(parallel[1])  # what an untrained model writes
    before, after = files_of(work.folder / "data-bin"), files_of(distilled / "data-bin")
    for name in ("dict.en.txt", "dict.de.txt", "valid.en-de.en.bin", "test.en-de.de.bin", "bpe.codes", "tests.txt"):
        assert after[name] == before[name]
    Work("multi30k", distilled, work.environment).train("transformer", *_UPDATES)
    # The same command does nothing; with anything else that decides on the translations nothing is mixed.
    settings: dict[str, object] = {"BEAM": 2, "RATIO": 99, "UPSAMPLE": 1, "MIXED": distilled}
    times = times_of(distilled)
    work.run("distill", *given, **settings)
    assert "UPSAMPLE=2" in work.run("distill", *given, **settings | {"UPSAMPLE": 2}, status=1).stderr
    message = work.run("distill", *given[:-1], "11", **settings, status=1).stderr
    assert {"--max-len-b 12", "--max-len-b 11"} <= set(re.findall("--max-len-b ..", message))
    assert f"remove {distilled}/text and" in message
    content = model.read_bytes()
    model.write_bytes(content[:-1])
    assert "MODEL_DIGEST=" in work.run("distill", *given, **settings, status=1).stderr
    model.write_bytes(content)
    assert times_of(distilled) == times
