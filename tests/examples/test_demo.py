"""The demo: its checks of a corpus, its progress lines, and a short run through all of its commands."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from forked_python import ForkedPython
from sacremoses import MosesTokenizer

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


RunDemo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(QUICKSTART))
    import demo as module

    return module


@pytest.fixture
def run_demo(demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunDemo:
    """Return a function that runs the demo with options, and returns its status and what it printed."""

    def call(*options: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["demo.py", *map(str, options)])
        return demo.main(), *capsys.readouterr()

    return call


@pytest.fixture
def small_corpus(tmp_path: Path) -> Path:
    """Return a folder with the first pairs of the bundled corpus; the training part is packed."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for part, size in (("train", 600), ("valid", 40), ("test", 30)):
        for language in ("en", "de"):
            lines = (QUICKSTART / "corpus" / f"{part}.{language}").read_bytes().splitlines(keepends=True)[:size]
            (folder / f"{part}.{language}").write_bytes(b"".join(lines))
    for path in list(folder.glob("train.*")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return folder


@pytest.mark.long
def test_short_run_through_all_commands(
    demo: ModuleType,
    run_demo: RunDemo,
    small_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forked_python: ForkedPython,
) -> None:
    monkeypatch.setattr(sys, "executable", str(forked_python.python))  # the demo's commands are beside it
    monkeypatch.setattr(demo, "SMALL", dataclasses.replace(demo.SMALL, merges=300, width=32, layers=1, updates=20))
    output = tmp_path / "run"
    status, printed, _ = run_demo("--corpus", small_corpus, "--output", output)
    assert status == 0
    assert "600 training pairs" in printed
    assert printed.count("\n  reference  ") == 10
    assert "BLEU|" in printed
    script = (output / "commands.sh").read_text(encoding="utf-8").splitlines()
    shown = [line.removeprefix("$ ") for line in printed.splitlines() if line.startswith("$ ")]
    assert script[-len(shown) :] == shown

    # The model knows how its text was made of raw text.
    translate = [forked_python.folder / "fairseq-depthwise", "translate", output / "checkpoints/average.pt", "--cpu"]
    asked = [output / "test.en", "--json", "--print-alignment", "--max-len-b", "5"]
    lines = subprocess.run([*translate, *asked], check=True, stdout=subprocess.PIPE).stdout.splitlines()
    tokenizer, text = MosesTokenizer("en"), (output / "test.en").read_text(encoding="utf-8")
    assert [json.loads(line)["source_words"] for line in lines] == [*map(tokenizer.tokenize, text.splitlines())]

    # What was printed can be repeated by hand, and gives the same: one thread adds in one order.
    (output / "commands.sh").rename(tmp_path / "commands.sh")
    output.rename(tmp_path / "first")
    subprocess.run(["sh", str(tmp_path / "commands.sh")], check=True, stdout=subprocess.DEVNULL, cwd="/")
    for name in ("test.hyp", "score.txt"):
        assert (tmp_path / "repeated" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--corpus", "{corpus}", "--output", "{new}"], "test.de"),
        (["--corpus", "{corpus}", "--output", "{corpus}"], "--output"),
        (["--corpus", "{corpus}", "--output", "{new}", "--source", "fr"], "--source fr"),
    ],
)
def test_refused(run_demo: RunDemo, small_corpus: Path, tmp_path: Path, options: list[str], words: str) -> None:
    """A corpus whose sides differ in length, a folder of somebody else, and a language that is not there."""
    (small_corpus / "test.de").write_text("eins\n")
    given = [option.format(corpus=small_corpus, new=tmp_path / "run") for option in options]
    status, _, errors = run_demo(*given)
    assert status == 1
    assert words in errors


def test_sigterm_ends_the_command_that_runs(small_corpus: Path, tmp_path: Path) -> None:
    waiting = small_corpus / "test.en"
    waiting.unlink()
    os.mkfifo(waiting)  # reading it takes until somebody writes
    options = ("--corpus", small_corpus, "--output", tmp_path / "run")
    command = [sys.executable, QUICKSTART / "demo.py", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        reader = os.open(waiting, os.O_WRONLY)  # returns as soon as it is read
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    with pytest.raises(BrokenPipeError):
        os.write(reader, b"a line\n")
    os.close(reader)
