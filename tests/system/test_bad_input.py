"""Mistakes in paths, options, files and the environment, through the real commands: one sentence, no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

import fairseq_depthwise

RunCommand = Callable[..., CompletedProcess[str]]

ARCH = "depthwise_lstm_transformer"
PLUGIN = Path(fairseq_depthwise.__file__).parent
TRAINING = ["--cpu", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", "500", "--max-update", "3"]


@pytest.fixture
def training(copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path) -> list[object]:
    """A command that trains our architecture in the folder ``run``."""
    sizes = tiny_model_options(ARCH)
    return ["fairseq-depthwise", "train", copy_reverse_data, *sizes, *TRAINING, "--save-dir", tmp_path / "run"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("fairseq-depthwise train {folder}/nowhere --arch transformer TRAINING", "{folder}/nowhere"),
        ("fairseq-depthwise generate {data} --path {folder}/nowhere.pt", "{folder}/nowhere.pt"),
        ("OURS --encoder-attention-heads 3", "--encoder-attention-heads 3"),
        ("OURS --fp16", "--fp16 needs a GPU"),
        ("OURS --profile", "--profile needs a GPU"),
        ("OURS -s xx", "--source-lang 'xx'"),
        ("fairseq-train {data} --arch transformer --optimizer adam --cpu --save-dir {folder}/run", "--max-tokens"),
        ("fairseq-generate {data} --cpu", "--path"),
    ],
)
def test_refused_before_training(
    words: str, named: str, refusal: Callable[..., str], training: list[object], copy_reverse_data: Path, tmp_path: Path
) -> None:
    known = {"folder": tmp_path, "data": copy_reverse_data}
    lists = {"TRAINING": TRAINING, "OURS": training}
    given = [part for word in words.format(**known).split() for part in lists.get(word, [word])]
    assert named.format(**known) in refusal(*given)
    assert not list((tmp_path / "run").glob("*"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--beam 3 --diverse-beam-groups 2", "--diverse-beam-groups 2"),
        ("--beam 2 --sampling", "--nbest"),
        ("--sampling --nbest 5 --diverse-beam-groups 5", "--diverse-beam-groups"),
        ("--batch-size 2", "--buffer-size"),
    ],
)
def test_refused_before_a_search(
    words: str, named: str, refusal: Callable[..., str], trained: Callable[[str], Path], copy_reverse_data: Path
) -> None:
    command = ["fairseq-interactive", copy_reverse_data, "--path", trained("transformer"), "--cpu"]
    assert named in refusal(*command, *words.split())


# Checkpoints.


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("truncated", "damaged"), ("num_updates", "-1 updates"), ("lr_scheduler_state", "TypeError"), ("ema", "ema"),
        ("ema_fp32_params", "ema"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_refused_stays_as_it_is(
    kind: str, named: str, trained: Callable[[str], Path], refusal: Callable[..., str],
    training: list[object], copy_reverse_data: Path, tmp_path: Path,
) -> None:  # fmt: skip
    path, whole = tmp_path / "run/checkpoint_last.pt", trained(ARCH)
    path.parent.mkdir()
    if kind == "truncated":
        path.write_bytes(whole.read_bytes()[:-4000])
    else:
        state = torch.load(whole, weights_only=False)
        spread = {name: value.flatten()[:1].expand(value.shape) for name, value in state["model"].items()}
        entries = state["extra_state"] if kind.startswith("ema") else state["optimizer_history"][-1]
        entries[kind] = {"num_updates": -1, "lr_scheduler_state": ["lr"]}.get(kind, spread)
        torch.save(state, path)
    before = path.read_bytes()
    assert named in refusal(*training)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_without_the_plugin(
    trained: Callable[[str], Path], refusal: Callable[..., str], copy_reverse_data: Path
) -> None:
    real = {"PLUGIN": "none"}  # forks know the plugin
    sentence = refusal("fairseq-generate", copy_reverse_data, "--path", trained(ARCH), "--cpu", env=real)
    assert ARCH in sentence
    assert "--user-dir" in sentence
