"""The demo: its checks of a corpus, its progress lines, and a short run through all of its commands."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from forked_python import ForkedPython

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(QUICKSTART))
    import demo as module

    return module


@pytest.fixture
def small_corpus(tmp_path: Path) -> Path:
    """The first pairs of the bundled corpus; the training part packed."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for part, size in (("train", 600), ("valid", 40), ("test", 30)):
        for language in ("en", "de"):
            lines = (QUICKSTART / "corpus" / f"{part}.{language}").read_text(encoding="utf-8").split("\n")[:size]
            content = "".join(f"{line}\n" for line in lines).encode()
            if part == "train":
                (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / f"{part}.{language}").write_bytes(content)
    return folder


def test_short_run_through_all_commands(
    demo: ModuleType,
    small_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    forked_python: ForkedPython,
) -> None:
    monkeypatch.setattr(sys, "executable", str(forked_python.python))  # the demo's commands are beside it
    tiny = dataclasses.replace(demo.SMALL, merges=300, width=32, layers=1, updates=20)
    monkeypatch.setattr(demo, "SMALL", tiny)
    output = tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["demo.py", "--corpus", str(small_corpus), "--output", str(output)])
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert "600 train pairs, 40 valid pairs, 30 test pairs" in printed
    assert printed.count("\n  reference  ") == 10
    assert "BLEU|" in printed
    script = (output / "commands.sh").read_text(encoding="utf-8").splitlines()
    shown = [line.removeprefix("$ ") for line in printed.splitlines() if line.startswith("$ ")]
    assert script[-len(shown) :] == shown

    # What was printed can be repeated by hand, and gives the same: one thread adds in one order.
    (output / "commands.sh").rename(tmp_path / "commands.sh")
    shutil.copytree(output, tmp_path / "kept")
    shutil.rmtree(output)
    subprocess.run(["sh", str(tmp_path / "commands.sh")], check=True, stdout=subprocess.DEVNULL, cwd="/")
    for name in ("test.hyp", "score.txt"):
        repeated = (tmp_path / "repeated" / name).read_text(encoding="utf-8")
        assert repeated == (tmp_path / "kept" / name).read_text(encoding="utf-8")
    assert len(repeated.splitlines()) == 2


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: [path.unlink() for path in folder.iterdir()], "has 0 files named train.LANGUAGE; it needs two"),
        (lambda folder: (folder / "valid.de").unlink(), "lacks valid.de"),
        (lambda folder: (folder / "train.fr").write_text("un\n"), "has 3 files named train.LANGUAGE"),
        (lambda folder: (folder / "test.de").write_text("eins\n"), "test.en has 30 lines and test.de has 1"),
    ],
)
def test_unusable_corpora_are_explained(
    demo: ModuleType,
    small_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    sentence: str,
) -> None:
    spoil(small_corpus)
    output = tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["demo.py", "--corpus", str(small_corpus), "--output", str(output)])
    assert demo.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("demo: error: ")
    assert sentence in line


def test_a_used_folder_and_an_unknown_language_are_refused(
    demo: ModuleType,
    small_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "precious").write_text("x")
    for options, sentence in (
        (["--output", str(tmp_path / "used")], "exists and is no empty folder"),
        (
            ["--source", "fr", "--output", str(tmp_path / "new")],
            "--source fr is none of the corpus's languages, de and en",
        ),
        (["--corpus", str(tmp_path / "nowhere")], "is no folder"),
    ):
        monkeypatch.setattr(sys, "argv", ["demo.py", "--corpus", str(small_corpus), *options])
        assert demo.main() == 1
        assert sentence in capsys.readouterr().err


def test_english_is_the_source_unless_told_otherwise(demo: ModuleType, small_corpus: Path) -> None:
    assert demo.find_languages(small_corpus, None) == ("en", "de")
    assert demo.find_languages(small_corpus, "de") == ("de", "en")


def test_progress_is_read_from_the_log(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import command_line

    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(command_line.time, "monotonic", lambda: float(next(clock)))

    def log() -> Iterator[str]:
        yield "2026-01-01 00:00:00 | INFO | fairseq_cli.train | {'_name': None}\n"
        for update in (10, 20):
            state = {"epoch": 1, "num_updates": str(update), "loss": "5.5", "wps": "1234.5"}
            yield f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(state)}\n"
        state = {"epoch": 1, "valid_num_updates": "20", "valid_loss": "4.4"}
        yield f"2026-01-01 00:00:00 | INFO | valid | {json.dumps(state)}\n"

    command_line.show_training(log(), 100)
    assert capsys.readouterr().out.splitlines() == [
        "  at this speed training takes 2 minutes",  # 10 of 100 updates in 10 s
        "  update 10/100  loss 5.5  1,234 tokens/s  about 2 minutes left",
        "  update 20/100  loss 5.5  1,234 tokens/s  about 80 s left",
        "  update 20/100: validation loss 4.4",
    ]


def test_a_command_that_fails_is_shown_with_its_last_words(tmp_path: Path, demo: ModuleType) -> None:
    import command_line

    with pytest.raises(command_line.CommandError) as error:
        command_line.CommandLine(tmp_path).run("fairseq-preprocess --only-source --trainpref nothing")
    assert "ended with status" in str(error.value)
    assert "nothing" in str(error.value)
