"""``fairseq-depthwise gates`` and ``similarity``: what they share, the figure and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from figure_files import figure_in
from probe_checkpoints import checkpoint_of

from fairseq_compat import checkpoints

FAMILY = "depthwise_lstm_transformer"
COMMANDS = ("gates", "similarity")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    plain = checkpoint_of(folder, FAMILY, "plain.pt")
    state = checkpoints.load_checkpoint(plain)
    state["model"]["decoder.layers.1.cross_attention.output_projection.weight"].fill_(3e38)  # its products overflow
    torch.save(state, folder / "diverged.pt")
    two = checkpoint_of(folder, FAMILY, "two.pt", decoder_merge="two-cells", decoder_layers=2)
    return {"plain": plain, "two": two, "diverged": str(folder / "diverged.pt")}


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.parametrize(
    ("command", "texts"),
    [("gates", ["forget gate", "cell state", "L2 norm"]), ("similarity", ["cosine similarity", "to the embedding"])],
)
def test_figure(
    command: str, texts: list[str], suffix: str, models: dict[str, str], tmp_path: Path, data: str,
    printed: Callable[..., str],
) -> None:  # fmt: skip
    figure = tmp_path / f"figure.{suffix}"
    printed(command, models["plain"], models["two"], "--data", data, "--side", "both", "--output", figure)
    content = figure_in(figure)
    if suffix == "svg":
        for text in ("plain.pt", "two.pt", *texts):
            assert f">{text}<" in content.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_figure_of_one_side_and_of_many_odd_names(
    command: str, tmp_path: Path, data: str, printed: Callable[..., str]
) -> None:
    names = ["_$a$.pt", "$b$.pt", *(f"{number}.pt" for number in range(8))]
    paths = [checkpoint_of(tmp_path, FAMILY, name, decoder_layers=1) for name in names]
    figure = tmp_path / "figure.svg"
    printed(command, *paths, "--data", data, "--side", "decoder", "--output", figure)
    for name in names:
        assert f">{name}<" in figure.read_text()
    assert ">encoder" not in figure.read_text()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("{plain} --data {folder}/none", "--data {folder}/none"),
        ("{folder}/none.pt --data {data}", "{folder}/none.pt"),
        ("{plain} {data}/dict.src.txt --data {data}", "{data}/dict.src.txt"),
        ("{plain} --data {data} --subset empty", "--subset empty of {data}"),
        ("{plain} --data {data} --subset no", "--subset no: {data}"),
        ("{plain} {diverged} --data {data} --side both", "{diverged} computes values in decoder layer 2"),
        ("{plain} --data {data} --output {folder}/a", "--output {folder}/a"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_refused(
    command: str, words: str, named: str, models: dict[str, str], tmp_path: Path, data: str,
    refusal: Callable[..., str],
) -> None:  # fmt: skip
    known = {**models, "folder": tmp_path, "data": data}
    assert refusal(command, *words.format(**known).split()).startswith(named.format(**known))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_side_that_is_none(command: str, assert_usage_error: Callable[..., None]) -> None:
    assert_usage_error(command, "a.pt", "--data", "b", "--side", "middle", option="argument --side")
