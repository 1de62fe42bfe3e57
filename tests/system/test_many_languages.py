"""One model for many languages: fairseq's ``translation_multi_simple_epoch`` with every family, and growing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from many_languages import directions, make_data
from training_states import assert_same_state, hypotheses

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

NUMBER = 3

LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt_restart",
    "--warmup-updates", "4", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
    "--cpu", "--num-workers", "0", "--no-progress-bar", "--no-epoch-checkpoints", "--max-tokens", "200",
    "--disable-validation",
]  # fmt: skip

FFN = ["--encoder-ffn-embed-dim", "64", "--decoder-ffn-embed-dim", "64"]
SIZES = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim=32", "attention-heads=2")]
FAMILIES = {
    "depthwise_lstm_transformer": ["--depthwise-hidden-dim", "32"],
    "mute_transformer": [*FFN, "--encoder-units", "2"],
    "sdt_transformer": [*FFN, "--encoder-block-size", "1"],
}
DEPTHS = ["--encoder-layers", "2", "--decoder-layers", "1"]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("many_languages") / "data", NUMBER)


def task(name: str = "translation_multi_simple_epoch") -> list[str]:
    return ["--task", name, "--lang-pairs", ",".join(directions(NUMBER)), "--encoder-langtok", "tgt"]


GROWING = task("translation_multi_simple_epoch_layer_growth")


@pytest.fixture(scope="session")
def train(run_command: RunCommand, data: Path) -> Callable[..., str]:
    """``train(folder, *options, family=..., options_of_task=...)``: one call of the training command; its log."""

    def call(
        folder: Path, *options: Any, family: str = "sdt_transformer", options_of_task: list[str] | None = None
    ) -> str:
        result = run_command(
            "fairseq-depthwise", "train", data, *(options_of_task or task()), "--arch", family, *SIZES,
            *FAMILIES[family], *LEARNING, "--save-dir", folder, *options,
        )  # fmt: skip
        return result.stderr + result.stdout

    return call


def translations(
    run_command: RunCommand, data: Path, checkpoint: Path, direction: str, *options: Any, name: str = "generate"
) -> dict[str, str]:
    """Source with its tag -> translation."""
    source, target = direction.split("-")
    result = run_command(
        "fairseq-depthwise", name, data, "--path", checkpoint, "--source-lang", source, "--target-lang", target,
        "--beam", 2, "--cpu", "--num-workers", 0, *(options or task()),
        stdin="en_1 en_2 en_3\n" if name == "interactive" else "",
    )  # fmt: skip
    sources = re.findall(r"^S-(\d+)\t(.*)$", result.stdout, re.MULTILINE)
    translated = hypotheses(result.stdout)
    assert len(sources) == len(translated)
    return {source: translated[int(number)] for number, source in sources}


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["depthwise_lstm_transformer", "mute_transformer"])
def test_a_model_trains_goes_on_and_translates(
    train: Callable[..., str], run_command: RunCommand, data: Path, tmp_path: Path, family: str
) -> None:
    """An epoch has eight updates, so the stop is within the first."""
    log = train(tmp_path / "whole", "--max-update", 12, *DEPTHS, family=family)
    for pair in directions(NUMBER):
        assert f"main:{pair}" in log
    for end in (3, 12):
        train(tmp_path / "parts", "--max-update", end, *DEPTHS, family=family)
    last = tmp_path / "whole/checkpoint_last.pt"
    assert_same_state(last, tmp_path / "parts/checkpoint_last.pt")
    # Four special symbols, the words of four languages and a tag for each.
    table = checkpoints.load_checkpoint(last)["model"]["decoder.embedding.tokens.weight"]
    assert len(table) == 4 + 4 * 6 + 4
    found = translations(run_command, data, last, "l02-en")
    assert len(found) == 3
    assert all(source.startswith("__en__ ") for source in found)
    found = translations(run_command, data, last, "en-l01", name="interactive")
    assert list(found) == ["__l01__ en_1 en_2 en_3"]


# --- growing ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_growing_within_an_epoch(
    train: Callable[..., str], run_command: RunCommand, data: Path, tmp_path: Path
) -> None:
    """Stopped in a stage, at a border and in the last stage; what comes out is translated with by either task."""
    options: dict[str, Any] = {"options_of_task": GROWING}
    stages = ["--growth-stages", "1:5u,2:6u,3:4u", "--decoder-layers", 1]
    log = train(tmp_path / "whole", *stages, **options)
    assert re.findall(r"grew the encoder from (\d) to (\d) layers after (\d+)", log) == [
        ("1", "2", "5"),
        ("2", "3", "11"),
    ]
    for end in (3, 5, 13):
        train(tmp_path / "parts", *stages, "--max-update", end, **options)
    train(tmp_path / "parts", *stages, **options)
    last = tmp_path / "whole/checkpoint_last.pt"
    assert_same_state(last, tmp_path / "parts/checkpoint_last.pt")
    assert checkpoints.load_checkpoint(last)["cfg"]["model"]["encoder_layers"] == 3
    found = translations(run_command, data, last, "en-l01")
    assert translations(run_command, data, last, "en-l01", *GROWING) == found
    assert len(found) == 3
    assert "1:5u,2:6u,3:4u" in run_command("fairseq-depthwise", "inspect", last).stdout
