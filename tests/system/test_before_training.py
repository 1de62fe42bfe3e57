"""What fails at the first validation or save is found out before the first update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

RunCommand = Callable[..., CompletedProcess[str]]


@pytest.fixture
def training(copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]]) -> list[object]:
    return [
        "fairseq-train", copy_reverse_data, *tiny_model_options("transformer"), "--cpu", "--optimizer", "adam", "--lr",
        0.005, "--batch-size", 64, "--max-epoch", 1, "--no-epoch-checkpoints", "--log-interval", 1,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "--best-checkpoint-metric bleu --maximize-best-checkpoint-metric",
        "--eval-bleu --eval-bleu-args {beam:5}",
        '--eval-bleu --eval-bleu-args {"min_len":30,"max_len_a":0.1,"max_len_b":9}',
        "--eval-bleu --eval-bleu-detok mosess",
        "--eval-bleu --eval-bleu-detok-args [",
        "--eval-bleu --eval-bleu-remove-bpe words",
        "--max-source-positions 5",
        "--max-tokens-valid 5",
        "--eval-bleu --best-checkpoint-metric bleu",
        "--maximize-best-checkpoint-metric",
        "--share-all-embeddings --decoder-embed-dim 32",
        "--lr-scheduler polynomial_decay",
        "--upsample-primary 0",
        "--combine-valid-subsets --valid-subset valid,valid1",
    ],
)
def test_refused_before_the_first_update(
    words: str, run_command: RunCommand, refusal: Callable[..., str], training: list[object], tmp_path: Path
) -> None:
    named = {
        "--best-checkpoint-metric": "--best-checkpoint-metric bleu",
        "--max-source-positions": "--skip-invalid-size-inputs-valid-test",
        "--max-tokens-valid": "--max-tokens",
        "--share-all-embeddings": "--encoder-embed-dim",
        "--lr-scheduler": "--total-num-update",
        "--combine-valid-subsets": "--valid-subset",
    }
    first, *others = [word for word in words.split() if word.startswith("--")]
    sentence = refusal(*training, *words.split(), "--save-dir", tmp_path / "run")
    assert named.get(first, others[0] if others else first) in sentence
    assert not list((tmp_path / "run").glob("*.pt"))


def test_a_model_that_translates_into_nothing_has_a_bleu_of_0(
    run_command: RunCommand, training: list[object], tmp_path: Path
) -> None:
    result = run_command(
        *training, "--save-dir", tmp_path, "--eval-bleu", "--eval-bleu-args", '{"max_len_b": 0, "min_len": 0}',
        "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric",
    )  # fmt: skip
    assert "| bleu 0 |" in result.stdout + result.stderr
    assert (tmp_path / "checkpoint_best.pt").is_file()


def test_a_trial_changes_nothing_of_what_is_trained(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> None:
    training = [
        "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options("depthwise_lstm_transformer"), "--cpu",
        "--optimizer", "adam", "--lr", 0.005, "--batch-size", 64, "--max-epoch", 1, "--dropout", 0.3,
    ]  # fmt: skip
    sampled = '{"beam": 2, "sampling": true, "max_len_b": 5}'
    run_command(*training, "--eval-bleu", "--eval-bleu-args", sampled, "--save-dir", tmp_path / "tried")
    run_command(*training, "--disable-validation", "--save-dir", tmp_path / "untried")
    tried, untried = (
        torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False)["model"] for name in ("tried", "untried")
    )
    assert all(torch.equal(tried[name], untried[name]) for name in untried)


def test_subwords_that_the_data_does_not_have(
    refusal: Callable[..., str], training: list[object], tmp_path: Path
) -> None:
    (tmp_path / "codes").write_text("#version: 0.2\nw 1\n", encoding="utf-8")
    subwords = ["--bpe", "subword_nmt", "--bpe-codes", tmp_path / "codes"]
    sentence = refusal(*training, *subwords, "--save-dir", tmp_path / "run")
    assert "--bpe subword_nmt" in sentence
    assert "@@" in sentence


def test_a_warm_up_that_does_not_end_is_a_warning(
    run_command: RunCommand, training: list[object], tmp_path: Path
) -> None:
    """An epoch has 10 updates."""
    options = ["--lr-scheduler", "inverse_sqrt", "--save-dir", tmp_path / "run", "--disable-validation", "--no-save"]
    for warm_up, warns in ((11, True), (10, False)):
        log = run_command(*training, *options, "--warmup-updates", warm_up).stderr
        before, _, after = log.partition("num_updates=1,")
        assert after
        assert ("--warmup-updates" in before) is warns


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (["fairseq-train"], "file"),
        (["fairseq-depthwise", "train"], "file/folder"),
        (["fairseq-depthwise", "train"], "/proc/folder"),
    ],
)
def test_a_save_dir_that_cannot_be(
    command: list[str], folder: str, refusal: Callable[..., str], training: list[object], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert f"--save-dir {tmp_path / folder}" in refusal(*command, *training[1:], "--save-dir", tmp_path / folder)


def test_a_mistake_leaves_no_crash(
    refusal: Callable[..., str], copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> None:
    model = tiny_model_options("mute_transformer_sequential")
    options = ["--cpu", "--optimizer", "adam", "--batch-size", 64, "--save-dir", tmp_path / "run"]
    sentence = refusal("fairseq-depthwise", "train", copy_reverse_data, *model, *options)
    assert "--criterion label_smoothed_cross_entropy_with_auxiliary" in sentence
    assert not list((tmp_path / "run").glob("*.pt"))
