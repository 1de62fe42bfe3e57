"""A resumed run is the one never stopped: each scheduler, optimizer and way through an epoch, at any update."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_states import assert_same_state

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
Train = Callable[..., str]

#: The sentence pairs of the corpus.
SENTENCES = 600

MODEL = ["--arch", "transformer", "--share-all-embeddings", "--dropout", "0.1"]
for side in ("encoder", "decoder"):
    MODEL += [f"--{side}-layers", "1", f"--{side}-embed-dim", "8", f"--{side}-attention-heads", "1"]
    MODEL += [f"--{side}-ffn-embed-dim", "8"]
RUN = ["--criterion", "cross_entropy", "--cpu", "--num-workers", "0", "--no-epoch-checkpoints", "--no-progress-bar"]

SCHEDULERS = {
    "fixed": "--lr-scheduler fixed --force-anneal 2 --warmup-updates 3",
    "fixed, rates": "--lr-scheduler fixed --lr 0.01,0.004,0.03",
    "inverse_sqrt": "--lr-scheduler inverse_sqrt --warmup-updates 4",
    "inverse_sqrt_restart": "--lr-scheduler inverse_sqrt_restart --warmup-updates 2 --restart-updates 5,11",
    "polynomial_decay": "--lr-scheduler polynomial_decay --total-num-update 30 --warmup-updates 3 --force-anneal 2",
    "reduce_lr_on_plateau": "--lr-scheduler reduce_lr_on_plateau --lr-patience 1 --lr-threshold 0.9 --lr-shrink 0.5",
    "plateau, warm-up": "--lr-scheduler reduce_lr_on_plateau --lr-patience 0 --lr-threshold 0.9 --warmup-updates 6",
    "cosine": "--lr-scheduler cosine --lr-period-updates 7 --warmup-updates 2 --t-mult 1.5",
    "step": "--lr-scheduler step --lr-deacy-period 4",
    "tri_stage": "--lr-scheduler tri_stage --warmup-steps 3 --hold-steps 4 --decay-steps 5",
    "triangular": "--lr-scheduler triangular --max-lr 0.02 --lr-period-updates 6",
    "manual": "--lr-scheduler manual --epoch2lr {'1':0.02,'2-3':0.005} --update2lr {'14':0.001}",
}
OPTIMIZERS = {
    "adam": "--optimizer adam",
    "adam, average": "--optimizer adam --store-ema --ema-decay 0.5 --ema-update-freq 3",
    "adam, bf16": "--optimizer adam --bf16",
    "adam, bf16 alone": "--optimizer adam --memory-efficient-bf16",
    "fused_adam": "--optimizer fused_adam",
    "adagrad": "--optimizer adagrad",
    "adadelta": "--optimizer adadelta",
    "adafactor": "--optimizer adafactor --beta1 0.9",
    "adafactor, scaled": "--optimizer adafactor --scale-parameter",
    "adamax": "--optimizer adamax",
    "nag": "--optimizer nag",
    "sgd": "--optimizer sgd --momentum 0.9",
}
EPOCHS = {
    "plain": "",
    "skip-remainder-batch": "--skip-remainder-batch",
    "update-freq": "--update-freq 1,3,2 --skip-remainder-batch",
    "curriculum": "--curriculum 1",
    "grouped-shuffling": "--grouped-shuffling",
    "update-ordered-indices-seed": "--update-ordered-indices-seed",
    "update-epoch-batch-itr": "--update-epoch-batch-itr True",
    "fix-batches-to-gpus": "--fix-batches-to-gpus",
    "num-workers": "--num-workers 1 --data-buffer-size 2",
    "validate-interval": "--validate-interval 2",
    "validate-interval-updates": "--validate-interval-updates 3 --patience 6",
}


@pytest.fixture(scope="module")
def train(run_command: RunCommand, copy_reverse_data: Path) -> Train:
    """``train(folder, *options)`` trains a tiny Transformer there, goes on if there is a checkpoint; its log."""

    def call(folder: Path, *options: Any, check: bool = True) -> str:
        learning = ["--lr", 0.01, "--optimizer", "adam", "--max-tokens", 700]
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *MODEL, *RUN, *learning, "--save-dir", folder, *options,
            check=check,
        )  # fmt: skip
        return result.stderr + result.stdout

    return call


@pytest.fixture(scope="module")
def never_stopped(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``never_stopped(options)``: the checkpoint of three epochs in one go, trained once."""

    @functools.cache
    def checkpoint(options: str) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        train(folder, "--max-epoch", 3, *options.split())
        return folder / "checkpoint_last.pt"

    return checkpoint


def assert_stopped_is_never_stopped(
    options: str, stops: list[tuple[str, int]], train: Train, never_stopped: Callable[[str], Path], folder: Path
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for option, number in [*stops, ("--max-epoch", 3)]:
        train(folder, *options.split(), "--max-epoch", 3, option, number)
    whole = never_stopped(options)
    assert_same_state(whole, folder / "checkpoint_last.pt")
    averages = [checkpoints.load(path)["extra_state"].get("ema", {}) for path in (whole, folder / "checkpoint_last.pt")]
    for name, average in averages[0].items():
        assert name.endswith("_float_tensor") or torch.equal(average, averages[1][name]), name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--lr-scheduler inverse_sqrt --warmup-updates 2", "--lr-scheduler fixed.*--reset-lr-scheduler"),
        ("--optimizer sgd", "--optimizer adam.*--reset-optimizer"),
        ("--optimizer fused_adam --bf16", "--bf16.*--reset-optimizer"),
        ("--criterion label_smoothed_cross_entropy", "--criterion cross_entropy.*--reset-optimizer"),
    ],
)
def test_another_optimizer_is_refused_and_the_remedy_helps(
    options: str, said: str, train: Train, never_stopped: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copy(never_stopped("--max-update 2"), tmp_path)
    log = train(tmp_path, *options.split(), "--max-update", 3, check=False)
    sentence = log.splitlines()[0]
    assert re.search(said, sentence), log
    remedy = sentence.rpartition("or --reset")[2].split()[0]
    train(tmp_path, *options.split(), f"--reset{remedy}", "--max-update", 3)


def test_another_rate_of_a_scheduler_that_goes_on_with_the_old_one(
    train: Train, never_stopped: Callable[[str], Path], tmp_path: Path
) -> None:
    plateau = ["--lr-scheduler", "reduce_lr_on_plateau"]
    shutil.copy(never_stopped("--max-update 2 --lr-scheduler reduce_lr_on_plateau"), tmp_path)
    log = train(tmp_path, *plateau, "--lr", 0.25, "--max-update", 3, check=False)
    assert re.search("--lr 0.25.*--reset-lr-scheduler", log.splitlines()[0]), log
    train(tmp_path, *plateau, "--lr", 0.25, "--reset-lr-scheduler", "--max-update", 3)
    state = checkpoints.load(tmp_path / "checkpoint_last.pt")
    assert state["last_optimizer_state"]["param_groups"][0]["lr"] == 0.25


def test_epochs_that_begin_anew_elsewhere_have_a_best_of_their_own(train: Train, tmp_path: Path) -> None:
    train(tmp_path / "first", "--max-update", 2)
    path = tmp_path / "first" / "checkpoint_last.pt"
    state = checkpoints.load(path)
    state["extra_state"]["best"] = 0.0
    checkpoints.save(state, path)
    begun = ["--restore-file", path, "--max-update", 3]
    train(tmp_path / "other", *begun)
    train(tmp_path / "anew", *begun, "--reset-dataloader")
    found = [(tmp_path / name / "checkpoint_best.pt").exists() for name in ("other", "anew")]
    assert found == [False, True]


def test_without_the_state_of_its_optimizer_no_training_goes_on(train: Train, tmp_path: Path) -> None:
    train(tmp_path, "--max-update", 2, "--no-save-optimizer-state")
    log = train(tmp_path, "--max-update", 3, check=False)
    assert "checkpoint_last.pt has no optimizer state" in log
    assert "--reset-optimizer" in log
    assert checkpoints.updates_in(checkpoints.load(tmp_path / "checkpoint_last.pt")) == 2


def test_another_option_of_the_optimizer_is_refused_and_can_be_overridden(
    train: Train, never_stopped: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copy(never_stopped("--max-update 2"), tmp_path)
    log = train(tmp_path, "--weight-decay", 0.3, "--max-update", 3, check=False)
    assert "weight_decay 0.0, and this command's 0.3" in log.splitlines()[0]
    train(tmp_path, "--optimizer-overrides", "{'weight_decay': 0.3}", "--max-update", 3)
    state = checkpoints.load(tmp_path / "checkpoint_last.pt")
    assert state["last_optimizer_state"]["param_groups"][0]["weight_decay"] == 0.3


def test_an_average_and_another_metric_begin_where_a_run_goes_on(
    train: Train, never_stopped: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copy(never_stopped("--max-update 2"), tmp_path)
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 9}', "--eval-bleu-detok", "space"]
    metric = ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--patience", 1]
    log = train(tmp_path, "--store-ema", "--ema-decay", 0, *bleu, *metric, "--max-update", 3)
    extra_state = checkpoints.load(tmp_path / "checkpoint_best.pt")["extra_state"]
    assert extra_state["best"] == extra_state["val_loss"], log  # a loss of 3 would be better than most BLEU
    state = checkpoints.load(tmp_path / "checkpoint_last.pt")
    name = "encoder.layers.0.fc1.weight"
    assert torch.equal(state["extra_state"]["ema"][name], state["model"][name])


#: One of each kind of state that is easily lost; the test below has them all.
CHOICE = [
    ("reduce_lr_on_plateau", "adam, average", "skip-remainder-batch", [("--max-update", 4), ("--max-epoch", 2)]),
    ("polynomial_decay", "nag", "curriculum", [("--max-epoch", 1), ("--max-update", 19)]),
]


@pytest.mark.parametrize(("scheduler", "optimizer", "epochs", "stops"), CHOICE)
def test_some_runs_stopped_and_resumed(
    scheduler: str, optimizer: str, epochs: str, stops: list[tuple[str, int]], train: Train,
    never_stopped: Callable[[str], Path], tmp_path: Path,
) -> None:  # fmt: skip
    options = f"{SCHEDULERS[scheduler]} {OPTIMIZERS[optimizer]} {EPOCHS[epochs]}"
    assert_stopped_is_never_stopped(options, stops, train, never_stopped, tmp_path / "parts")


STOPS = st.one_of(
    st.tuples(st.just("--max-update"), st.integers(1, 26)), st.tuples(st.just("--max-epoch"), st.integers(1, 2))
)


@pytest.mark.long
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    epochs=st.sampled_from(sorted(EPOCHS)),
    stops=st.lists(STOPS, min_size=1, max_size=2),
)
def test_any_run_stopped_anywhere_and_resumed(
    scheduler: str, optimizer: str, epochs: str, stops: list[tuple[str, int]], train: Train,
    never_stopped: Callable[[str], Path], tmp_path: Path,
) -> None:  # fmt: skip
    options = f"{SCHEDULERS[scheduler]} {OPTIMIZERS[optimizer]} {EPOCHS[epochs]}"
    assert_stopped_is_never_stopped(options, stops, train, never_stopped, tmp_path / "parts")
