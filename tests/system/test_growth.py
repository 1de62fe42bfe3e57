"""Growing while training, by the commands that users type: stages, resuming, kills, precisions, what comes out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training_states import assert_same_state

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


def updates_in(log: str) -> list[dict[str, float]]:
    """What was logged of every update."""
    lines = re.findall(r"train_inner \| (\{.*\})", log)
    return [{key: float(value) for key, value in json.loads(line).items() if value} for line in lines]


def depth_of(checkpoint: Path, side: str = "encoder") -> tuple[int, int]:
    """The depth in a checkpoint's options, and the layers it has parameters of."""
    state = checkpoints.load_checkpoint(checkpoint)
    layers = {int(found[1]) for name in state["model"] if (found := re.match(rf"{side}\.layers\.(\d+)\.", name))}
    return state["cfg"]["model"][f"{side}_layers"], len(layers)


def rate_after(updates: int, restarts: list[int]) -> float:
    """The closed form, read anew: what the update after so many updates is taken at."""
    step = 0
    for update in range(updates + 1):
        if update in restarts:
            step = min(step, WARMUP)
        if update < updates:
            step += 1
    return PEAK * step / WARMUP if step < WARMUP else PEAK * (WARMUP / step) ** 0.5


# --- stages ----------------------------------------------------------------------------------------------------------


def test_stages_in_updates_follow_the_plan(whole: tuple[Path, str]) -> None:
    folder, log = whole
    logged = updates_in(log)
    assert [update["depth"] for update in logged] == [2] * 5 + [3] * 4 + [4] * 6
    assert [update["stage"] for update in logged] == [1] * 5 + [2] * 4 + [3] * 6
    assert {update["peak_lr"] for update in logged} == {PEAK}
    # fairseq logs with update n the rate of update n + 1; at a border that is the rate before the restart.
    for number, update in enumerate(logged, start=1):
        restarts = [border for border in (5, 9) if border < number]
        assert update["lr"] == pytest.approx(rate_after(number, restarts), rel=1e-4)
    for border in ("5 updates", "9 updates"):
        assert re.search(rf"grew the encoder .* after {border} .* learning rate 0.005", log)
    assert depth_of(folder / "checkpoint_2_5.pt") == (2, 2)  # a border's checkpoint has the depth it was trained with
    assert depth_of(folder / "checkpoint_2_6.pt") == (3, 3)
    assert depth_of(folder / "checkpoint_last.pt") == (4, 4)
    schedule = checkpoints.load_checkpoint(folder / "checkpoint_last.pt")["optimizer_history"][-1]
    assert schedule["num_updates"] == 15
    assert schedule["lr_scheduler_state"]["restarts"] == [5, 9]


def test_the_first_update_after_growth_is_taken_at_the_restarted_rate(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    """Plain gradient descent: what the update changed, divided by the gradient, is the rate."""
    options = [
        *SDT, *LEARNING, *GROWING, "--optimizer", "sgd", "--dropout", 0, "--attention-dropout", 0,
        "--activation-dropout", 0, "--save-dir", tmp_path, "--save-interval-updates", 1,
    ]  # fmt: skip
    log = run_command("fairseq-depthwise", "train", copy_reverse_data, *options, "--growth-stages", "2:5u,3:2u")
    gradient_norm = updates_in(log.stderr + log.stdout)[5]["gnorm"]
    run_command("fairseq-depthwise", "grow", tmp_path / "checkpoint_1_5.pt", tmp_path / "grown.pt", "--layers", 3)
    before, after = (
        checkpoints.load_checkpoint(tmp_path / name)["model"] for name in ("grown.pt", "checkpoint_1_6.pt")
    )
    tied = ("decoder.embedding.tokens.weight", "decoder.output_projection.weight")
    change = sum(float((after[name] - before[name]).double().pow(2).sum()) for name in after if name not in tied)
    assert change**0.5 / gradient_norm == pytest.approx(PEAK, rel=1e-2)


def test_stages_in_epochs_set_their_batches(grow: Callable[..., str], tmp_path: Path) -> None:
    log = grow(tmp_path, "--growth-stages", "2:1@1000x1,3:2@500x2,4:1@2000x3", "--bf16")
    logged = updates_in(log)
    depths = [int(update["depth"]) for update in logged]
    assert depths == sorted(depths)
    assert {int(update["epoch"]): int(update["depth"]) for update in logged} == {1: 2, 2: 3, 3: 3, 4: 4}
    words = {depth: max(update["wpb"] for update in logged if update["depth"] == depth) for depth in (2, 3, 4)}
    assert words[2] <= 1000
    assert words[3] <= 2 * 500
    assert 2000 < words[4] <= 3 * 2000
    # One batch in an update, then two, then three: fewer updates from as many batches.
    per_epoch = [sum(update["epoch"] == epoch for update in logged) for epoch in (1, 2, 4)]
    assert per_epoch[0] > per_epoch[2]
    assert depth_of(tmp_path / "checkpoint_last.pt") == (4, 4)


@pytest.mark.parametrize("option", ["--max-epoch", "--max-update"])
def test_an_open_last_stage_ends_with_training(grow: Callable[..., str], tmp_path: Path, option: str) -> None:
    stages = "2:1,3:" if option == "--max-epoch" else "2:2u,3:"
    log = grow(tmp_path, "--growth-stages", stages, option, 3)
    assert depth_of(tmp_path / "checkpoint_last.pt") == (3, 3)
    reached = updates_in(log)[-1]
    assert (reached["epoch"] if option == "--max-epoch" else reached["num_updates"]) == 3


def test_an_early_end_is_said(grow: Callable[..., str], tmp_path: Path) -> None:
    log = grow(tmp_path, "--growth-stages", "2:4u,3:4u,4:", "--max-update", 6)
    assert "training ends with 3 layers: --max-update 6 is over before the later stages" in log
    assert depth_of(tmp_path / "checkpoint_last.pt") == (3, 3)


def test_new_layers_start_anew_and_old_ones_stay_frozen(grow: Callable[..., str], tmp_path: Path) -> None:
    """Stopped after the growth and resumed: the old layers are those of the border, the rest has moved."""
    options = [
        "--growth-stages", "2:2u,3:4u", "--growth-strategy", "random", "--growth-freeze", "copied",
        "--save-interval-updates", 2, "--weight-decay", 0.1,
    ]  # fmt: skip
    log = grow(tmp_path, *options, "--max-update", 4)
    assert re.search(r"grew the encoder from 2 to 3 layers .* [\d,]+ parameters, [\d,]+ of them frozen", log)
    assert re.search(r"--growth-freeze copied: [\d,]+ parameters do not train", grow(tmp_path, *options))
    border, end = (checkpoints.load_checkpoint(tmp_path / f"checkpoint_1_{n}.pt")["model"] for n in (2, 6))
    unchanged = {name for name, value in border.items() if torch.equal(value, end[name])}
    old_layers = {name for name in border if name.startswith("encoder.layers.")}
    assert old_layers <= unchanged
    assert {name for name in unchanged if ".embedding.tokens" in name or ".feed_forward." in name} <= old_layers
    assert not torch.equal(*(end[f"encoder.layers.{layer}.feed_forward.first.weight"] for layer in (1, 2)))


# --- stopping, killing, going on -------------------------------------------------------------------------------------


def test_stopped_anywhere_and_resumed_is_never_stopped(
    grow: Callable[..., str], whole: tuple[Path, str], tmp_path: Path
) -> None:
    """In the first stage, at a border, right after it, within the last stage; some updates are not saved."""
    options = [*IN_UPDATES, "--update-freq", 2, "--validate-interval-updates", 2]
    for end in (3, 5, 6, 12):
        grow(tmp_path, *options, "--max-update", end)
    log = grow(tmp_path, *options)
    assert "@ 12 updates" in log
    assert_same_state(whole[0] / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")


def test_epochs_with_own_batches_are_resumed_exactly(grow: Callable[..., str], tmp_path: Path) -> None:
    options = ["--growth-stages", "2:1@700x1,3:1@500x2,4:1@900x1"]
    grow(tmp_path / "whole", *options)
    grow(tmp_path / "parts", *options, "--max-epoch", 1)
    grow(tmp_path / "parts", *options, "--max-update", 14)
    grow(tmp_path / "parts", *options)
    assert_same_state(tmp_path / "whole/checkpoint_last.pt", tmp_path / "parts/checkpoint_last.pt")


def test_killed_at_any_moment_and_repeated_is_never_stopped(
    grow: Callable[..., str], whole: tuple[Path, str], copy_reverse_data: Path, tmp_path: Path
) -> None:
    """SIGKILL while a checkpoint is being written, at the moment of growth, and within a stage."""
    options = [*IN_UPDATES, "--save-interval-updates", "1", "--update-freq", "2"]
    folder, log = tmp_path / "killed", tmp_path / "log"
    command = [
        sys.executable, "-m", "fairseq_depthwise", "train", str(copy_reverse_data), *SDT, *LEARNING, *GROWING,
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


def test_grown_as_a_file_and_trained_on_is_grown_while_training(
    run_command: RunCommand, copy_reverse_data: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    """The command on files and the plain task, from the checkpoint of a border, take the same updates."""
    folder, _ = whole
    run_command(
        "fairseq-depthwise", "grow", folder / "checkpoint_2_5.pt", tmp_path / "checkpoint_last.pt", "--layers", 3
    )
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *SDT, *LEARNING, "--encoder-layers", 3, "--max-tokens", 1000,
        "--update-freq", 2, "--max-update", 7, "--save-interval-updates", 1, "--save-dir", tmp_path,
    )  # fmt: skip
    assert_same_state(folder / "checkpoint_2_7.pt", tmp_path / "checkpoint_2_7.pt")


# --- precisions, moving average, optimizer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--bf16", "--growth-optimizer-state", "keep", "--checkpoint-activations"],
        ["--memory-efficient-bf16"],
        ["--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4", "--growth-optimizer-state", "keep"],
        ["--bf16", "--encoder-layerdrop", "0.2"],
    ],
    ids=["bf16", "memory-efficient bf16", "fp16", "bf16 with layerdrop"],
)
def test_half_precisions_grow(grow: Callable[..., str], tmp_path: Path, options: list[str]) -> None:
    log = grow(tmp_path, *IN_UPDATES, *options)
    logged = updates_in(log)
    assert [update["depth"] for update in logged] == [2] * 5 + [3] * 4 + [4] * 6
    assert all(update["loss"] < 8 for update in logged)
    assert logged[-1]["loss"] < logged[0]["loss"]
    assert depth_of(tmp_path / "checkpoint_last.pt") == (4, 4)


def test_kept_moments_go_on(grow: Callable[..., str], tmp_path: Path) -> None:
    """At a border old layers keep Adam's step count, copies take it over, and new connections begin at 0."""
    grow(tmp_path, *IN_UPDATES, "--growth-optimizer-state", "keep", "--max-update", 7)
    state = checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")
    steps = [moments["step"] for moments in state["last_optimizer_state"]["state"].values()]
    new = [name for name in state["model"] if name.startswith("encoder.connection.rows.3")]
    assert len(new) == 1
    assert sorted(set(steps)) == [2, 7]
    assert steps.count(2) == 1
    grow(tmp_path / "resumed", *IN_UPDATES, "--growth-optimizer-state", "keep")
    grow(tmp_path, *IN_UPDATES, "--growth-optimizer-state", "keep")
    assert_same_state(tmp_path / "resumed/checkpoint_last.pt", tmp_path / "checkpoint_last.pt")


def test_the_moving_average_grows_and_is_resumed(grow: Callable[..., str], tmp_path: Path) -> None:
    options = [*IN_UPDATES, "--store-ema", "--ema-decay", 0.9, "--ema-fp32"]
    grow(tmp_path / "whole", *options)
    for end in (5, 7):
        grow(tmp_path / "parts", *options, "--max-update", end)
    grow(tmp_path / "parts", *options)
    states = [checkpoints.load_checkpoint(tmp_path / run / "checkpoint_last.pt") for run in ("whole", "parts")]
    averages = [state["extra_state"]["ema_fp32_params"] for state in states]
    assert averages[0].keys() == states[0]["model"].keys()
    for name, tensor in averages[0].items():
        assert torch.equal(tensor, averages[1][name]), name
    # An average lags behind: it is the model's only where it was made anew from it.
    name = "encoder.layers.0.feed_forward.first.weight"
    assert not torch.allclose(averages[0][name], states[0]["model"][name], atol=1e-3)


# --- other models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["encoder", "decoder", "both"])
def test_the_depthwise_model_grows_on_either_side(grow: Callable[..., str], tmp_path: Path, side: str) -> None:
    other = [] if side == "both" else [f"--{'decoder' if side == 'encoder' else 'encoder'}-layers", 1]
    log = grow(tmp_path, "--growth-stages", "1:3u,2:3u,3:3u", "--growth-side", side, *other, model=DEPTHWISE)
    for one in ("encoder", "decoder"):
        layers = 3 if side in (one, "both") else 1
        assert depth_of(tmp_path / "checkpoint_last.pt", one) == (layers, layers)
    assert updates_in(log)[-1]["depth"] == 3
    # The gates are shared: growth must not take them apart.
    state = checkpoints.load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    for one in ("encoder", "decoder") if side == "both" else (side,):
        gates = [state[f"{one}.layers.{layer}.cell.gates.projection.weight"] for layer in range(3)]
        assert len({gate.data_ptr() for gate in gates}) == 1


@pytest.mark.parametrize("strategy", ["top", "interpolation"])
def test_other_strategies_train(grow: Callable[..., str], tmp_path: Path, strategy: str) -> None:
    log = grow(
        tmp_path, "--growth-stages", "2:2u,3:2u", "--growth-strategy", strategy, "--encoder-block-size", 0,
        "--lr-scheduler", "inverse_sqrt",
    )  # fmt: skip
    assert "which --lr-scheduler inverse_sqrt_restart would have restarted" in log
    assert depth_of(tmp_path / "checkpoint_last.pt") == (3, 3)


# --- what comes out --------------------------------------------------------------------------------------------------


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


def test_depths_and_families_decode_together(
    grow: Callable[..., str], run_command: RunCommand, copy_reverse_data: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    grow(tmp_path, "--growth-stages", "1:2u,2:2u", "--growth-side", "both", model=DEPTHWISE)
    folder, _ = whole
    run_command(
        "fairseq-train", copy_reverse_data, "--arch", "transformer", *SIZES, "--encoder-layers", 1, "--decoder-layers",
        1, *(option for option in LEARNING if "restart" not in option and option != "--lr-scheduler"),
        "--lr-scheduler", "inverse_sqrt", "--max-tokens", 1000, "--max-update", 2, "--no-epoch-checkpoints",
        "--save-dir", tmp_path / "stock",
    )  # fmt: skip
    models = [
        folder / "checkpoint_2_5.pt", folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt",
        tmp_path / "stock/checkpoint_last.pt",
    ]  # fmt: skip
    result = run_command(
        "fairseq-depthwise", "generate", copy_reverse_data, "--path", ":".join(map(str, models)), "--beam", 3, "--cpu",
    )  # fmt: skip
    assert len(re.findall(r"^H-\d+", result.stdout, re.MULTILINE)) == 40


def test_a_grown_model_is_used_like_any_other(
    run_command: RunCommand, copy_reverse_data: Path, whole: tuple[Path, str]
) -> None:
    from fairseq_depthwise.models.sdt.model import SDTTransformer

    folder, _ = whole
    model = SDTTransformer.from_pretrained(str(folder), "checkpoint_last.pt", str(copy_reverse_data))
    hub_translation = model.translate(["w1 w2 w3"], beam=2)[0]
    result = run_command(
        "fairseq-depthwise", "interactive", copy_reverse_data, "--path", folder / "checkpoint_last.pt", "--beam", 2,
        "--cpu", stdin="w1 w2 w3\n\n",
    )  # fmt: skip
    translations = re.findall(r"^D-\d\t\S+\t(.*)$", result.stdout, re.MULTILINE)
    assert len(translations) == 2
    assert translations[0] == hub_translation


def test_averaging_stays_within_a_depth(run_command: RunCommand, whole: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = whole
    run_command("fairseq-depthwise", "average", "--output", tmp_path / "mean.pt", "--last", 3, folder)
    assert depth_of(tmp_path / "mean.pt") == (4, 4)
    refused = run_command(
        "fairseq-depthwise", "average", "--output", tmp_path / "no.pt", folder / "checkpoint_2_5.pt",
        folder / "checkpoint_2_6.pt", check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert re.search(r"checkpoint_2_6.pt has 3 encoder layers .*checkpoint_2_5.pt (has )?2", refused.stderr)
    assert not (tmp_path / "no.pt").exists()
