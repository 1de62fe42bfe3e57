"""What a growing run leaves to be looked at: event files for TensorBoard, and checkpoints for ``inspect``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

PEAK, WARMUP = 5e-3, 2
STAGES = "2:3u,3:4u"
UPDATES = range(1, 8)


@pytest.fixture(scope="module")
def looked_at_run(run_command: RunCommand, copy_reverse_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``events`` and checkpoints of a run that grows from 2 to 3 layers after 3 of its 7 updates."""
    folder = tmp_path_factory.mktemp("looked_at")
    sizes = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim=32", "attention-heads=2")]
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, "--arch", "sdt_transformer", *sizes, "--decoder-layers", 1,
        "--encoder-block-size", 1, "--share-all-embeddings", "--task", "translation_layer_growth", "--growth-stages",
        STAGES, "--optimizer", "adam", "--lr", PEAK, "--lr-scheduler", "inverse_sqrt_restart", "--warmup-updates",
        WARMUP, "--criterion", "cross_entropy", "--cpu", "--max-tokens", 500, "--log-interval", 1,
        "--save-interval-updates", 2, "--save-dir", folder, "--tensorboard-logdir", folder / "events",
    )  # fmt: skip
    return folder


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Name -> update -> value."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {name: {one.step: one.value for one in events.Scalars(name)} for name in events.Tags()["scalars"]}


def test_stage_depth_and_learning_rate_are_scalars_of_every_update(looked_at_run: Path) -> None:
    found = scalars(looked_at_run / "events" / "train_inner")
    assert found["stage"] == {update: 1 if update <= 3 else 2 for update in UPDATES}
    assert found["depth"] == {update: 2 if update <= 3 else 3 for update in UPDATES}
    assert found["peak_lr"] == pytest.approx(dict.fromkeys(UPDATES, PEAK))
    # Logged is the rate of the next update: one of warm-up, and after the restart the steps count from its end again.
    steps = [1, 2, 3, 3, 4, 5, 6]
    rates = [PEAK * min(step / WARMUP, (WARMUP / step) ** 0.5) for step in steps]
    assert found["lr"] == pytest.approx(dict(zip(UPDATES, rates, strict=True)), rel=1e-5)
    assert found["loss"].keys() == set(UPDATES)
    epoch = scalars(looked_at_run / "events" / "train")
    assert [epoch[name][UPDATES[-1]] for name in ("stage", "depth", "peak_lr")] == pytest.approx([2, 3, PEAK])
