"""The Multi-Unit Transformer through the commands that users type."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_states import assert_same_state, logged

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
ModelOptions = Callable[[str], list[str]]

LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "100", "--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0.1",
    "--max-tokens", "1000", "--cpu", "--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "1",
]  # fmt: skip
MUTE, SEQUENTIAL = "mute_transformer", "mute_transformer_sequential"


@pytest.fixture(scope="session")
def train(run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions) -> Callable[..., str]:
    """``train(arch, folder, *options)``: one call of the training command; returns its log, complaints last."""

    def call(arch: str, folder: Path, *options: object, check: bool = True) -> str:
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *tiny_model_options(arch), *LEARNING, "--save-dir", folder,
            *options, check=check,
        )  # fmt: skip
        assert check or result.returncode == 1
        assert "Traceback" not in result.stderr + result.stdout
        return result.stdout + result.stderr

    return call


@pytest.fixture(scope="session")
def sequential(train: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and log of six updates of the full model."""
    folder = tmp_path_factory.mktemp("sequential")
    return folder, train(SEQUENTIAL, folder, "--max-update", 6, "--save-interval-updates", 3)


@pytest.mark.xdist_group("sequential")
def test_stopped_and_resumed_is_never_stopped(
    sequential: tuple[Path, str], train: Callable[..., str], tmp_path: Path
) -> None:
    """In the middle of an epoch, with the noise on."""
    for updates in (3, 6):
        log = train(SEQUENTIAL, tmp_path, "--max-update", updates, "--save-interval-updates", 3)
    assert "Loaded checkpoint" in log
    assert_same_state(sequential[0] / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")


def test_every_layers_penalty_is_logged_and_counts(train: Callable[..., str], tmp_path: Path) -> None:
    log = train(
        SEQUENTIAL, tmp_path, "--permutation-penalty", 0.5, "--label-smoothing", 0, "--warmup-updates", 1,
        "--update-freq", 2, "--max-update", 6, "--tensorboard-logdir", tmp_path / "events",
    )  # fmt: skip
    updates, valid = logged(log), logged(log, "valid")[-1]
    assert len(updates) == 6
    names = ["permutation_penalty_1", "permutation_penalty_2"]
    for name in names:
        # 4 is the uniform matrix's.
        assert 3.9 < updates[0][name] < 4
        assert updates[-1][name] < updates[0][name]
    for one in (updates[0], {name.removeprefix("valid_"): value for name, value in valid.items()}):
        # Losses are logged in bits.
        added = 0.5 * sum(one[name] for name in names) / math.log(2)
        assert one["loss"] == pytest.approx(one["nll_loss"] + added, abs=2e-3)
    written = b"".join(path.read_bytes() for path in (tmp_path / "events" / "train_inner").iterdir())
    assert all(name.encode() in written for name in names)


@pytest.mark.xdist_group("sequential")
def test_hard_order_at_inference(
    sequential: tuple[Path, str], run_command: RunCommand, copy_reverse_data: Path
) -> None:
    """It is chosen when generating, and the log says how far it is from what was learned."""

    def generate(*options: object) -> str:
        result = run_command(
            "fairseq-depthwise", "generate", copy_reverse_data, "--path", sequential[0] / "checkpoint_last.pt",
            "--gen-subset", "test", "--cpu", "--beam", 2, "--max-len-b", 8, *options,
        )  # fmt: skip
        return result.stderr + result.stdout

    soft, hard = generate(), generate("--model-overrides", "{'permutation_at_inference': 'hard'}")
    found = re.findall(r"encoder\.layers\.(\d)\.order: units in the order ([\d ]+), ([\d.]+) from", hard)
    assert [layer for layer, _, _ in found] == ["0", "1"]
    for _, order, distance in found:
        assert sorted(order.split()) == ["1", "2", "3", "4"]
        # Of the uniform matrix from any permutation: the root of 3.
        assert float(distance) == pytest.approx(3**0.5, abs=0.1)
    assert "units in the order" not in soft
    scores = [re.findall(r"^H-\d+\t(\S+)", log, re.MULTILINE) for log in (soft, hard)]
    assert scores[0] != scores[1]


def test_two_processes(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: ModelOptions, tmp_path: Path
) -> None:
    """Each has its own noise, and in some updates one of them has none."""
    result = run_command(
        "torchrun", "--standalone", "--nproc_per_node", 2, "-m", "fairseq_depthwise", "train", copy_reverse_data,
        *tiny_model_options(SEQUENTIAL), *LEARNING, "--unit-noise-rate", 0.5, "--max-update", 6, "--update-freq", 2,
        "--disable-validation", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--save-dir", tmp_path,
    )  # fmt: skip
    log = result.stderr + result.stdout
    assert "done training" in log
    saved = checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert saved["optimizer_history"][-1]["num_updates"] == 6
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())


@pytest.mark.xdist_group("sequential")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--unit-sequential --criterion label_smoothed_cross_entropy", "--permutation-penalty 0.00025"),
        ("--unit-sequential --restore-file LAST --encoder-units 3 --unit-inputs mask", "--encoder-units 4"),
        ("--unit-sequential --restore-file LAST --unit-sharing attention", "--unit-sharing none"),
        ("--unit-sequential --restore-file LAST --unit-inputs swap", "mask in --unit-inputs"),
    ],
)
def test_refused(
    words: str, named: str, train: Callable[..., str], sequential: tuple[Path, str], tmp_path: Path
) -> None:
    """Options that make no sense, and a checkpoint of other units."""
    last = str(sequential[0] / "checkpoint_last.pt")
    sentence = train(MUTE, tmp_path, *words.replace("LAST", last).split(), check=False).strip().splitlines()[-1]
    assert sentence.startswith("fairseq-train: error: ")
    assert named in sentence
    assert ("LAST" in words) == (last in sentence)
