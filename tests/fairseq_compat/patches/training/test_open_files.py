"""A process opens as many data files as it may, and says in one sentence when it may not open enough."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from many_languages import directions, make_data

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
"""

LOADING = """
from fairseq.data import data_utils
def limits():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
kept = []
for number in map(int, sys.argv[4:]):
    for language in range(number):
        for side in ("en", f"l{language:02d}"):
            kept.append(data_utils.load_indexed_dataset(f"{sys.argv[3]}/train.en-l{language:02d}.{side}"))
    limits()
"""

TRAINING = "from fairseq_cli.train import cli_main\nsys.argv = ['fairseq-train', *sys.argv[3:]]\ncli_main()\n"


RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files for each language."""
    return make_data(tmp_path_factory.mktemp("many") / "data", 40, parts={"train": 1, "valid": 1})


def test_the_soft_limit_is_raised_once_half_of_it_is_in_use(run_python: RunPython, data: Path) -> None:
    """The first five languages leave most of 128 free, the other forty exceed it."""
    result = run_python(LIMITED + LOADING, 128, 1000, data, 5, 40)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["128", "1000", "1000", "1000"]


def test_a_low_hard_limit_is_one_sentence(run_python: RunPython, data: Path, tmp_path: Path) -> None:
    result = run_python(
        LIMITED + TRAINING, 64, 128, data, "--task", "translation_multi_simple_epoch", "--lang-pairs",
        ",".join(directions(40)), "--encoder-langtok", "tgt", "--arch", "transformer", "--encoder-layers", 1,
        "--decoder-layers", 1, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--encoder-attention-heads", 2,
        "--decoder-attention-heads", 2, "--max-tokens", 100, "--cpu", "--save-dir", tmp_path,
    )  # fmt: skip
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("fairseq-train: error: too many open files")
    assert "ulimit -n 8192" in last
    assert "Traceback" not in result.stderr
