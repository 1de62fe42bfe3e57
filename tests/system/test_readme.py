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
    "--depthwise-hidden-dim 64 --cpu --max-epoch 5 --no-progress-bar",
    "fairseq-depthwise generate": "--cpu --quiet",
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
    """A folder with text in subwords and their codes, and text to translate."""
    for part, size in (("train", 300), ("valid", 20), ("test", 20)):
        for language in ("en", "de"):
            lines = (ROOT / f"examples/quickstart/corpus/{part}.{language}").read_text(encoding="utf-8").split("\n")
            (tmp_path / f"{part}.bpe.{language}").write_text("\n".join(lines[:size]) + "\n", encoding="utf-8")
    (tmp_path / "bpe.codes").write_text("#version: 0.2\nt h\nth e</w>\n", encoding="utf-8")
    (tmp_path / "new.en").write_text("The dog sleeps.\n\nHe isn't here.\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("page", ["README.md", "docs/getting_started.md"])
def test_commands_of_the_page(page: str, folder: Path, forked_python: ForkedPython) -> None:
    preprocess, *commands = commands_of("docs/getting_started.md", "A first training run of your own")
    if page == "README.md":
        install, *commands = commands_of(page, "Quick start")
        assert install.startswith("pip install")  # tests/system/test_installation.py installs
    else:
        commands += commands_of(page, "Translating text")
    printed = [run(command, folder, forked_python.folder) for command in (preprocess, *commands)]
    assert any("BLEU4" in output for output in printed) == (page != "README.md")
    assert (folder / "new.de").read_text(encoding="utf-8").count("\n") == 3
