"""Variants of every family through the commands that users type: training, decoding, averaging."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from training_states import assert_same_state, bleu4, hypotheses

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

ARCH, SDT = "depthwise_lstm_transformer", "sdt_transformer"
LEARNING = [
    "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100",
    "--max-tokens", "1000", "--cpu", "--no-progress-bar", "--no-epoch-checkpoints",
]  # fmt: skip
TIED = ["--share-all-embeddings", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]

#: Options of the depth-wise model and, where a tied output is impossible, another criterion.
VARIANTS = {
    "two cells": [
        *TIED, "--decoder-merge", "two-cells", "--max-relative-positions", "4", "--relative-position-terms",
        "key-value", "--log-gates",
    ],
    "concat": [
        *TIED, "--decoder-merge", "concat", "--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3",
        "--checkpoint-activations",
    ],
    "share all": [*TIED, "--depthwise-sharing", "all", "--depthwise-gate-scope", "model"],
    "rnn": [*TIED, "--depthwise-cell", "rnn", "--attention-bias"],
}  # fmt: skip

#: Connections over depth -> what else is tested with them.
CONNECTIONS = {
    "average": ["--checkpoint-activations"],
    "attention": ["--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3", "--norm-scaling"],
    "hyper": ["--hyper-manifold", "--hyper-streams", "2"],
    "value-residual": ["--checkpoint-activations"],
}


def connected(name: str) -> list[str]:
    """Options that let a connection connect both stacks."""
    return ["--encoder-connection", name, "--decoder-connection", name, "--encoder-block-size", "0"]


#: Options of the shallow-to-deep model.
SDT_VARIANTS = {
    "sdt without connections": [
        *TIED, "--encoder-block-size", "0", "--relative-position-terms", "key-value", "--activation-fn", "gelu",
    ],
    "sdt with dense connections": [
        *TIED, "--encoder-block-size", "1", "--checkpoint-activations", "--encoder-layerdrop", "0.3",
    ],
    **{f"sdt, {name}": [*TIED, *connected(name), *more] for name, more in CONNECTIONS.items()},
}  # fmt: skip

#: Those that are stopped and resumed: connections, and what draws random numbers in the backward pass or skips layers.
RESUMED = ("concat", "sdt, average", "sdt, attention", "sdt, hyper", "sdt, value-residual")


class Run(NamedTuple):
    """A finished training run."""

    folder: Path
    log: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def train_variant(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]]
) -> Callable[..., Run]:
    """``train_variant(folder, name, *options)``: one call of the training command."""

    def call(folder: Path, name: str, *options: object) -> Run:
        sizes = tiny_model_options(SDT if name in SDT_VARIANTS else ARCH)
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *sizes, *LEARNING, *(VARIANTS | SDT_VARIANTS)[name],
            "--save-dir", folder, *options,
        )  # fmt: skip
        return Run(folder, result.stderr + result.stdout)

    return call


@pytest.fixture(scope="session")
def trained(train_variant: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """``trained(name)``: four updates with dropout, saved at the second and the fourth; made once."""
    runs: dict[str, Run] = {}

    def call(name: str) -> Run:
        if name not in runs:
            folder = tmp_path_factory.mktemp("variant")
            runs[name] = train_variant(folder, name, "--max-update", 4, "--dropout", 0.2, "--save-interval-updates", 2)
        return runs[name]

    return call


@pytest.fixture(scope="session")
def generate(run_command: RunCommand, copy_reverse_data: Path) -> Callable[..., str]:
    """``generate(checkpoint, *options)``: what fairseq's own command prints for the test set."""
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"

    def call(checkpoint: Path, *options: object) -> str:
        return run_command(
            "fairseq-generate", copy_reverse_data, "--user-dir", plugin, "--path", checkpoint, "--cpu", "--beam", 2,
            "--max-len-b", 8, *options,
        ).stdout  # fmt: skip

    return call


def grouped(name: str) -> object:
    """A parameter whose tests share a trained model, so that one process runs them all."""
    return pytest.param(name, marks=pytest.mark.xdist_group(name))


@pytest.mark.parametrize("name", [grouped(name) for name in VARIANTS | SDT_VARIANTS])
def test_it_trains_and_generates(name: str, trained: Callable[[str], Run], generate: Callable[..., str]) -> None:
    run = trained(name)
    assert "done training" in run.log
    assert re.search(r"'valid' subset \| loss [\d.]+ ", run.log)
    assert len(hypotheses(generate(run.checkpoint))) == 40


@pytest.mark.xdist_group("two cells")
def test_gates_are_in_the_log(trained: Callable[[str], Run]) -> None:
    log = trained("two cells").log
    for side in ("encoder", "decoder"):
        for gate in ("input", "forget", "output"):
            (mean,) = re.findall(rf"\| {side}_{gate}_gate ([\d.]+) ", log)
            (deviation,) = re.findall(rf"\| {side}_{gate}_gate_deviation ([\d.]+) ", log)
            assert 0.4 < float(mean) < 0.6
            assert 0 < float(deviation) < 0.5
        assert len(re.findall(rf"\| {side}_cell_norm [\d.]+ ", log)) == 1
    for layer in ("encoder_cell_norm_layer1", "decoder_forget_gate_layer1a", "decoder_forget_gate_layer1b"):
        assert f"| {layer} " in log


@pytest.mark.xdist_group("rnn")
def test_gates_that_are_not_asked_for_are_not(trained: Callable[[str], Run]) -> None:
    assert not re.search(r"(input|forget|output)_gate", trained("rnn").log)


@pytest.mark.xdist_group("two cells")
def test_retained_dropout_and_alignments(trained: Callable[[str], Run], generate: Callable[..., str]) -> None:
    checkpoint = trained("two cells").checkpoint
    options = ["--retain-dropout", "--print-alignment", "hard"]
    plain, retained = (generate(checkpoint, *given) for given in ([], options))
    assert len(hypotheses(retained)) == 40
    assert hypotheses(retained) != hypotheses(plain)
    alignments = re.findall(r"^A-\d+\t(.*)$", retained, re.MULTILINE)
    assert len(alignments) == 40
    assert all(re.fullmatch(r"(\d+-\d+ ?)+", alignment) for alignment in alignments)


@pytest.mark.parametrize("name", [grouped(name) for name in RESUMED])
def test_stopped_and_resumed_is_never_stopped(
    name: str, train_variant: Callable[..., Run], trained: Callable[[str], Run], tmp_path: Path
) -> None:
    """What the stopped training would save at its second update, the whole one has saved there."""
    shutil.copy(trained(name).folder / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt")
    parts = train_variant(tmp_path, name, "--max-update", 4, "--dropout", 0.2, "--save-interval-updates", 2)
    assert "Loaded checkpoint" in parts.log
    assert_same_state(trained(name).checkpoint, parts.checkpoint)


@pytest.mark.xdist_group("share all")
def test_shared_parts_stay_shared_in_an_average(
    run_command: RunCommand, trained: Callable[[str], Run], generate: Callable[..., str], tmp_path: Path
) -> None:
    folder = trained("share all").folder
    inputs = [folder / "checkpoint_1_2.pt", folder / "checkpoint_1_4.pt"]
    run_command("fairseq-depthwise", "average", "--output", tmp_path / "mean.pt", *inputs)
    mean, *states = (checkpoints.load_checkpoint(path)["model"] for path in (tmp_path / "mean.pt", *inputs))
    for key, tensor in mean.items():
        torch.testing.assert_close(tensor, (states[0][key] + states[1][key]) / 2)
    gates = [tensor for key, tensor in mean.items() if key.endswith("gates.projection.weight")]
    assert len(gates) == 4
    assert all(torch.equal(gates[0], other) for other in gates)
    assert len(hypotheses(generate(tmp_path / "mean.pt"))) == 40


#: The rate falls to nothing, so that no noise of the last updates stays in the model.
FALLING = [
    "--max-tokens", "500", "--max-update", "360", "--lr-scheduler", "polynomial_decay", "--total-num-update", "360",
    "--warmup-updates", "30", "--save-interval", "100", "--disable-validation", "--share-all-embeddings", "--dropout",
    "0", "--attention-dropout", "0", "--activation-dropout", "0",
]  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        pytest.param(ARCH, ["--criterion", "cross_entropy", "--decoder-merge", "two-cells"], marks=pytest.mark.long),
        pytest.param(SDT, ["--criterion", "cross_entropy"], marks=pytest.mark.long),
        (
            "mute_transformer_sequential",
            ["--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0"],
        ),
        *(
            pytest.param(SDT, ["--criterion", "cross_entropy", *connected(name)], marks=pytest.mark.long)
            for name in CONNECTIONS
        ),
    ],
    ids=["two cells", "sdt", "sequential mute", *CONNECTIONS],
)
@pytest.mark.slow
def test_copy_and_reverse_is_memorized(
    arch: str, options: list[str], run_command: RunCommand, copy_reverse_data: Path,
    tiny_model_options: Callable[[str], list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *LEARNING, *FALLING, *options,
        "--save-dir", tmp_path,
    )  # fmt: skip
    result = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", tmp_path / "checkpoint_last.pt",
        "--gen-subset", "train", "--beam", 4, "--quiet", "--cpu",
    )  # fmt: skip
    assert bleu4(result.stdout) >= 99
