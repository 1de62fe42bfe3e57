"""Growing while training, by the commands that users type: stages, kills, what comes out."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython
from training_states import assert_same_state, logged

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

SIZES = [
    f"--{side}-{size}"
    for side in ("encoder", "decoder")
    for size in ("embed-dim=32", "attention-heads=2", "ffn-embed-dim=64")
]
SDT = ["--arch", "sdt_transformer", *SIZES, "--decoder-layers", "2", "--encoder-block-size", "1"]


DEPTHWISE = [
    "--arch", "depthwise_lstm_transformer", *(size for size in SIZES if "ffn" not in size),
    "--depthwise-hidden-dim", "32",
]  # fmt: skip
WARMUP, PEAK = 4, 5e-3
LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", str(PEAK), "--lr-scheduler", "inverse_sqrt_restart",
    "--warmup-updates", str(WARMUP), "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
    "--cpu", "--no-progress-bar", "--log-format", "json", "--log-interval", "1",
]  # fmt: skip
GROWING = ["--task", "translation_layer_growth", "--no-epoch-checkpoints", "--max-tokens", "1000"]

#: Three stages of 5, 4 and 6 updates. An epoch has 7 batches, so 7 updates or 4; both borders lie within epochs.
IN_UPDATES = ["--growth-stages", "2:5u,3:4u,4:6u"]


@pytest.fixture(scope="session")
def grow(run_command: RunCommand, copy_reverse_data: Path) -> Callable[..., str]:
    """``grow(folder, *options, model=SDT)``: one call of the training command; returns its log."""

    def call(folder: Path, *options: Any, model: list[str] = SDT) -> str:
        result = run_command(
            "fairseq-depthwise", "train", copy_reverse_data, *model, *LEARNING, *GROWING, "--save-dir", folder, *options
        )
        return result.stderr + result.stdout

    return call


@pytest.fixture(scope="session")
def whole(grow: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and log of a run in updates that was never stopped; every update is saved."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, grow(folder, *IN_UPDATES, "--save-interval-updates", 1, "--update-freq", 2)


def depth_of(checkpoint: Path, side: str = "encoder") -> tuple[int, int]:
    """The depth in a checkpoint's options, and the layers it has parameters of."""
    state = checkpoints.load_checkpoint(checkpoint)
    layers = {int(found[1]) for name in state["model"] if (found := re.match(rf"{side}\.layers\.(\d+)\.", name))}
    return state["cfg"]["model"][f"{side}_layers"], len(layers)


# --- stages ----------------------------------------------------------------------------------------------------------


def test_stages_in_updates_follow_the_plan(whole: tuple[Path, str]) -> None:
    folder, log = whole
    updates = logged(log)
    assert [update["depth"] for update in updates] == [2] * 5 + [3] * 4 + [4] * 6
    assert [update["stage"] for update in updates] == [1] * 5 + [2] * 4 + [3] * 6
    for border in ("5 updates", "9 updates"):
        assert re.search(rf"grew the encoder .* after {border} .* learning rate 0.005", log)
    assert depth_of(folder / "checkpoint_2_5.pt") == (2, 2)  # a border's checkpoint has the depth it was trained with
    assert depth_of(folder / "checkpoint_2_6.pt") == (3, 3)
    assert depth_of(folder / "checkpoint_last.pt") == (4, 4)
    schedule = checkpoints.load_checkpoint(folder / "checkpoint_last.pt")["optimizer_history"][-1]
    assert schedule["num_updates"] == 15
    assert schedule["lr_scheduler_state"]["restarts"] == [5, 9]


# --- killing, going on -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_killed_at_any_moment_and_repeated_is_never_stopped(
    grow: Callable[..., str], whole: tuple[Path, str], copy_reverse_data: Path, forked_python: ForkedPython,
    tmp_path: Path,
) -> None:  # fmt: skip
    """SIGKILL while a checkpoint is being written, at the moment of growth, and within a stage."""
    options = [*IN_UPDATES, "--save-interval-updates", "1", "--update-freq", "2"]
    folder, log = tmp_path / "killed", tmp_path / "log"
    command = [
        str(forked_python.python), "-m", "fairseq_depthwise", "train", str(copy_reverse_data), *SDT, *LEARNING,
        *GROWING,
        "--save-dir", str(folder), *options,
    ]  # fmt: skip

    def saving() -> bool:
        return bool(list(folder.glob("checkpoint_1_3.pt"))) and bool(list(folder.glob("*.fairseq-unfinished")))

    def growing() -> bool:
        return "grew the encoder" in log.read_text()

    def within_the_last_stage() -> bool:
        return bool(list(folder.glob("checkpoint_*_11.pt")))

    for moment in (saving, growing, within_the_last_stage):
        with log.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        deadline = time.monotonic() + 120
        while not moment():
            assert process.poll() is None, f"the run ended before {moment.__name__}\n{log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{moment.__name__} did not come"
        process.send_signal(signal.SIGKILL)
        process.wait()
    grow(folder, *options)
    assert_same_state(whole[0] / "checkpoint_last.pt", folder / "checkpoint_last.pt")
    assert list(folder.glob("*.fairseq-unfinished")) == []


def test_the_depthwise_model_grows_on_both_sides(grow: Callable[..., str], tmp_path: Path) -> None:
    """The gates are shared: growth must not take them apart."""
    grow(tmp_path, "--growth-stages", "1:2u,2:2u,3:2u", "--growth-side", "both", model=DEPTHWISE)
    state = checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    for side in ("encoder", "decoder"):
        assert depth_of(tmp_path / "checkpoint_last.pt", side) == (3, 3)
        gates = [state[f"{side}.layers.{layer}.cell.gates.projection.weight"] for layer in range(3)]
        assert len({gate.data_ptr() for gate in gates}) == 1


# --- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_bleu_is_measured_by_the_grown_model(
    grow: Callable[..., str], run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    """``--eval-bleu`` keeps a generator that was made for the shallow model; its score must be the deep one's."""
    log = grow(
        tmp_path, "--growth-stages", "2:1,3:6", "--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_a": 0, '
        '"max_len_b": 20}', "--eval-bleu-detok", "space", "--dropout", 0,
    )  # fmt: skip
    reported = float(re.findall(r'"valid_bleu": "([\d.]+)"', log)[-1])
    generated = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", tmp_path / "checkpoint_last.pt",
        "--gen-subset", "valid", "--beam", 2, "--max-len-b", 20, "--cpu", "--scoring", "sacrebleu",
        "--sacrebleu-tokenizer", "13a",
    )  # fmt: skip
    found = re.search(r"BLEU = ([\d.]+)", generated.stdout)
    assert found is not None
    assert reported == pytest.approx(float(found[1]), abs=0.06)
