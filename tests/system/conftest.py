"""What the tests of whole commands share: running a command, a small corpus, options of small models."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython

#: Seconds after which a command is killed and its test fails.
TIMEOUT = 240

#: Sentence pairs of the small corpus.
SIZES = {"train": 600, "valid": 80, "test": 40}
SYMBOLS = [f"w{number}" for number in range(20)]

#: The type of the fixture ``run_command``.
RunCommand = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_command(forked_python: ForkedPython) -> RunCommand:
    """``run_command(name, *args)`` runs a command of this environment, whose arguments are turned into text.

    With ``check`` a status other than 0 is a failure that shows what was printed. Without ``env``, which may be read
    while Python or fairseq start, a command is run in a fork (``forked_python.py``).
    """

    def call(
        name: str, *args: object, stdin: str = "", env: Any = None, check: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        options = list(map(str, args))
        folder = Path(sys.executable).parent if env else forked_python.folder
        result = subprocess.run(
            [folder / name, *options], input=stdin, env={**os.environ, **(env or {})}, capture_output=True, text=True,
            timeout=TIMEOUT, check=False, cwd=cwd,
        )  # fmt: skip
        if check and result.returncode != 0:
            raise AssertionError(
                f"{name} {' '.join(options)}\nended with status {result.returncode}\n"
                f"--- stdout\n{result.stdout[-4000:]}\n--- stderr\n{result.stderr[-4000:]}"
            )
        return result

    return call


@pytest.fixture(scope="session")
def refusal(run_command: RunCommand) -> Callable[..., str]:
    """``refusal(*args, ...)`` runs a command that must fail with one sentence on stderr, and returns the sentence."""

    def call(*args: object, **options: Any) -> str:
        result = run_command(*args, check=False, **options)
        assert result.returncode == 1, result.stderr
        assert "Traceback" not in result.stdout + result.stderr
        line = result.stderr.splitlines()[-1]
        start, _, sentence = line.partition(": error: " if ": error: " in line else ": ")
        assert start.startswith("fairseq-"), line
        return sentence

    return call


def _tiny_model_options(arch: str) -> list[str]:
    sizes = ["--arch", arch, "--num-workers", "0"]
    for side in ("encoder", "decoder"):
        sizes += [f"--{side}-layers", "2", f"--{side}-embed-dim", "64", f"--{side}-attention-heads", "2"]
    if arch == "depthwise_lstm_transformer":
        return [*sizes, "--depthwise-hidden-dim", "128"]
    sizes += ["--encoder-ffn-embed-dim", "128", "--decoder-ffn-embed-dim", "128"]
    return [*sizes, "--encoder-block-size", "1"] if arch == "sdt_transformer" else sizes


@pytest.fixture(scope="session")
def tiny_model_options() -> Callable[[str], list[str]]:
    """``tiny_model_options(arch)``: ``--arch`` and sizes of a model of 2+2 layers, width 64 and 2 heads.

    Without a process that loads data, which would start anew in every epoch.
    """
    return _tiny_model_options


@pytest.fixture(scope="session")
def trained(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """``trained(arch)``: the checkpoint of a tiny model after two updates, made once; copy it to change it."""

    @cache
    def checkpoint(arch: str) -> Path:
        folder = tmp_path_factory.mktemp(arch)
        run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *_tiny_model_options(arch), "--cpu",
            "--optimizer", "adam", "--lr", 0.005, "--max-tokens", 500, "--max-update", 2, "--no-epoch-checkpoints",
            "--save-dir", folder,
        )  # fmt: skip
        return folder / "checkpoint_last.pt"

    return checkpoint


def _sentence_pairs() -> list[tuple[str, str]]:
    """Distinct sources of 2 to 6 symbols; the target is the source reversed, then the source."""
    chance = random.Random(1)
    sources: dict[tuple[str, ...], None] = {}
    while len(sources) < sum(SIZES.values()):
        sources[tuple(chance.choices(SYMBOLS, k=chance.randint(2, 6)))] = None
    return [(" ".join(words), " ".join((*reversed(words), *words))) for words in sources]


@pytest.fixture(scope="session")
def copy_reverse_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``train.src``, ``train.tgt`` and so on for ``valid`` and ``test``: the corpus as text."""
    folder = tmp_path_factory.mktemp("copy_reverse_text")
    pairs = iter(_sentence_pairs())
    for part, size in SIZES.items():
        lines = [next(pairs) for _ in range(size)]
        for language, column in (("src", 0), ("tgt", 1)):
            text = "".join(f"{pair[column]}\n" for pair in lines)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def copy_reverse_data(
    run_command: RunCommand, copy_reverse_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The data folder that ``fairseq-preprocess`` makes of :func:`copy_reverse_text`, with a joined dictionary."""
    folder = tmp_path_factory.mktemp("copy_reverse") / "data-bin"
    prefixes = [part for name in SIZES for part in (f"--{name}pref", str(copy_reverse_text / name))]
    run_command(
        "fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary", *prefixes,
        "--destdir", folder, "--workers", 1,
    )  # fmt: skip
    return folder
