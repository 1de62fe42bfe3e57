"""The README's first training run and translation, as they stand there, on a small corpus and with a smaller model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: What is added to a command of the README so that it ends soon.
SMALLER = {
    "fairseq-depthwise train": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--depthwise-hidden-dim 64 --cpu --max-epoch 5 --no-progress-bar",
    "fairseq-depthwise generate": "--cpu --quiet",
    "fairseq-depthwise translate": "--cpu",
}


def commands_of(heading: str) -> list[str]:
    """The shell commands of the first code block below a heading, continued lines joined."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [line for line in block[1].replace("\\\n", " ").splitlines() if line.strip()]


def test_first_training_run(tmp_path: Path) -> None:
    for part, size in (("train", 300), ("valid", 20), ("test", 20)):
        for language in ("en", "de"):
            lines = (ROOT / f"examples/quickstart/corpus/{part}.{language}").read_text(encoding="utf-8").split("\n")
            (tmp_path / f"{part}.bpe.{language}").write_text("\n".join(lines[:size]) + "\n", encoding="utf-8")
    (tmp_path / "bpe.codes").write_text("#version: 0.2\nt h\nth e</w>\n", encoding="utf-8")
    (tmp_path / "new.en").write_text("The dog sleeps.\n\nHe isn't here.\n", encoding="utf-8")
    commands = commands_of("A first training run of your own")
    assert len(commands) == 4
    translating = commands_of("Translating text")
    assert len(translating) == 1
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    outputs = []
    for command in commands + translating:
        added = next((options for start, options in SMALLER.items() if command.startswith(start)), "")
        result = subprocess.run(
            ["sh", "-c", f"{command} {added}"],
            cwd=tmp_path,
            env={**os.environ, "PATH": programs},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
        outputs.append(result.stdout)
    assert "BLEU4" in outputs[3]
    assert (tmp_path / "new.de").read_text(encoding="utf-8").count("\n") == 3
