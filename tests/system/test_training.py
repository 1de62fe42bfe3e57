"""Training by the commands that users type: resuming, kills, hydra."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython
from training_states import assert_same_state

from fairseq_compat import checkpoints
from fairseq_compat.patches.training import DIVERGED

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

ARCH = "depthwise_lstm_transformer"
LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "100", "--criterion", "cross_entropy", "--cpu", "--no-progress-bar",
]  # fmt: skip


@pytest.fixture(scope="session")
def train(run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions) -> Callable[..., str]:
    """``train(folder, *options)``: one call of the training command; returns its log."""

    def call(folder: Path, *options: Any, data: Path = copy_reverse_data, dropout: float = 0.0) -> str:
        result = run_command(
            "fairseq-depthwise", "train", data, *tiny_model_options(ARCH), *LEARNING,
            "--dropout", dropout, "--save-dir", folder, *options,
        )  # fmt: skip
        return result.stderr + result.stdout

    return call


# --- resuming ------------------------------------------------------------------------------------------------------


def test_stopped_and_resumed_is_never_stopped(train: Callable[..., str], tmp_path: Path) -> None:
    """At the end of an epoch."""
    options = ["--max-tokens", 700, "--no-epoch-checkpoints", "--max-epoch"]
    train(tmp_path / "whole", *options, 2, dropout=0.2)
    train(tmp_path / "parts", *options, 1, dropout=0.2)
    assert "Loaded checkpoint" in train(tmp_path / "parts", *options, 2, dropout=0.2)
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "parts/checkpoint_last.pt")


@pytest.mark.long
def test_a_finished_run_stays_finished(train: Callable[..., str], tmp_path: Path) -> None:
    """At a rate of 0 no validation is better than the first; a resumed run goes on counting them."""
    options = ["--max-tokens", 2000, "--lr", 0, "--patience", 3, "--no-epoch-checkpoints", "--max-epoch"]
    train(tmp_path, *options, 2)
    log = train(tmp_path, *options, 9)
    assert "end of epoch 4 " in log
    assert "end of epoch 5 " not in log
    for more in ([], ["--reset-meters", "--max-update", 1]):
        log = train(tmp_path, *options, 9, *more)
        assert "nothing is left to train" in log
        assert "end of epoch" not in log
    assert "end of epoch 5 " in train(tmp_path, *options, 5, "--reset-meters")


def newest_update(folder: Path) -> int:
    """The highest update of which there is a checkpoint; 0 where there is none."""
    return max((int(path.stem.rpartition("_")[2]) for path in folder.glob("checkpoint_*_*.pt")), default=0)


def test_killed_at_any_moment_and_resumed_is_never_stopped(
    train: Callable[..., str], copy_reverse_data: Path, tiny_model_options: ModelOptions, forked_python: ForkedPython,
    tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL while checkpoints are being written every update; whatever is left must be a good starting point."""
    options = ["--max-tokens", "700", "--max-update", "20", "--save-interval-updates", "1"]
    options += ["--keep-interval-updates", "2"]
    train(tmp_path / "whole", *options, dropout=0.2)
    command = [
        str(forked_python.python), "-m", "fairseq_depthwise", "train", str(copy_reverse_data),
        *tiny_model_options(ARCH), *LEARNING, "--dropout", "0.2", "--save-dir", str(tmp_path / "killed"), *options,
    ]  # fmt: skip
    for updates in (4, 11):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while newest_update(tmp_path / "killed") < updates:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the run wrote no checkpoint"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    train(tmp_path / "killed", *options, dropout=0.2)
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "killed/checkpoint_last.pt")
    assert list((tmp_path / "killed").glob("*.fairseq-unfinished")) == []


def test_best_checkpoints_by_bleu_are_kept_resumed_and_averaged(
    run_command: RunCommand, train: Callable[..., str], tmp_path: Path
) -> None:
    """What most IWSLT recipes do; the score goes through sacreBLEU into the checkpoint and its name."""
    options = [
        "--max-tokens", 1000, "--eval-bleu", "--eval-bleu-args", '{"beam": 2}', "--eval-bleu-detok", "space",
        "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--keep-best-checkpoints", 2,
        "--no-epoch-checkpoints",
    ]  # fmt: skip
    train(tmp_path, *options, "--max-epoch", 2)
    log = train(tmp_path, *options, "--max-epoch", 4)
    assert "Loaded checkpoint" in log
    kept = sorted(tmp_path.glob("checkpoint.best_bleu_*.pt"))
    assert len(kept) == 2
    result = run_command("fairseq-depthwise", "average", "--output", tmp_path / "mean.pt", "--best", 2, tmp_path)
    assert all(path.name in result.stdout for path in kept)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (ARCH, "--optimizer adam --lr 1e20"),
        ("transformer", "--optimizer adam --lr 1e20"),
        ("transformer", "--optimizer sgd --lr 1e-3 --weight-decay 1e9"),
    ],
)
def test_a_training_that_diverges_says_so(
    arch: str, options: str, refusal: Callable[..., str], copy_reverse_data: Path,
    tiny_model_options: ModelOptions, tmp_path: Path,
) -> None:  # fmt: skip
    sentence = refusal(
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *options.split(), "--cpu",
        "--max-tokens", 1000, "--max-update", 20, "--save-dir", tmp_path,
    )  # fmt: skip
    assert sentence.startswith(DIVERGED)


# --- other ways to drive it ------------------------------------------------------------------------------------------


def test_hydra_train(run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path) -> None:
    """The same configuration from a file, by a process that does not know the plugin before ``user_dir`` names it."""
    plugin = Path(__file__).parents[2] / "fairseq_depthwise"
    (tmp_path / "small.yaml").write_text(
        textwrap.dedent(f"""
        common: {{user_dir: {plugin}, cpu: true, log_format: simple}}
        task: {{_name: translation, data: {copy_reverse_data}}}
        model: {{_name: {ARCH}, encoder_layers: 1, decoder_layers: 1, encoder_embed_dim: 16, decoder_embed_dim: 16,
                encoder_attention_heads: 2, decoder_attention_heads: 2, depthwise_hidden_dim: 32}}
        criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
        optimizer: {{_name: adam}}
        lr_scheduler: {{_name: inverse_sqrt_restart, warmup_updates: 1, restart_updates: "2"}}
        dataset: {{max_tokens: 1000}}
        optimization: {{max_update: 3, lr: [0.001]}}
        checkpoint: {{save_dir: {tmp_path}/run, no_epoch_checkpoints: true}}
        """),
        encoding="utf-8",
    )
    run_command(
        "fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "small", cwd=tmp_path, env={"PLUGIN": "none"}
    )
    state = checkpoints.load_checkpoint(tmp_path / "run/checkpoint_last.pt")
    assert state["optimizer_history"][-1]["lr_scheduler_state"]["restarts"] == [2]
    saved = state["cfg"]["model"]
    assert (saved["_name"], saved["depthwise_hidden_dim"], saved["dropout"]) == (ARCH, 32, 0.1)
