"""The commands of the README and of "Getting started", on a small corpus and with a smaller model."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from forked_python import ForkedPython

ROOT = Path(__file__).parents[2]

#: What is added to a command so that it ends soon.
SMALLER = {
    "fairseq-depthwise train": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--depthwise-hidden-dim 64 --cpu --max-epoch 5",
    "fairseq-depthwise prepare": "--merges 150 --workers 1",
    "fairseq-depthwise translate": "--cpu",
}


def commands_of(page: str, heading: str) -> list[str]:
    """Return the shell commands of the first code block below a heading, continued lines joined."""
    text = (ROOT / page).read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [line for line in block[1].replace("\\\n", " ").splitlines() if line.strip()]


def run(command: str, folder: Path, programs: Path) -> str:
    """Run a command as the page has it, made smaller, and return what it prints."""
    added = next((options for start, options in SMALLER.items() if command.startswith(start)), "")
    result = subprocess.run(
        ["sh", "-c", f"{command} {added}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
    return result.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus of the pages' languages, and text to translate."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for part, size in (("train", 300), ("valid", 20), ("test", 20)):
        for language, name in (("en", "en"), ("de", "de"), ("de", "sv")):
            lines = (ROOT / f"examples/quickstart/corpus/{part}.{language}").read_text(encoding="utf-8").split("\n")
            (corpus / f"{part}.{name}").write_text("\n".join(lines[:size]) + "\n", encoding="utf-8")
    (tmp_path / "new.en").write_text("The dog sleeps.\n\nHe isn't here.\n", encoding="utf-8")
    return tmp_path


PAGES = {
    "README.md": ["Sixty seconds"],
    "docs/getting_started.md": ["Preparing", "Training", "Translating", "Scoring", "Reporting"],
}


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page(page: str, folder: Path, forked_python: ForkedPython) -> None:
    commands = [command for heading in PAGES[page] for command in commands_of(page, heading)]
    if page == "README.md":
        install, *commands = commands
        assert install.startswith("pip install")  # tests/system/test_installation.py installs
    printed = [run(command, folder, forked_python.folder) for command in commands]
    if page == "README.md":
        assert (folder / "new.sv").read_text(encoding="utf-8").count("\n") == 3
    else:
        assert any(output.startswith("BLEU") for output in printed)
        assert (folder / "report.html").is_file()
