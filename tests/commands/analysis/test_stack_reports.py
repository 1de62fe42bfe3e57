"""``fairseq-depthwise gates`` and ``similarity``: what they share, the figure and sentences about bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from figure_files import figure_in
from probe_checkpoints import checkpoint_of, data_in

from fairseq_compat import checkpoints
from fairseq_depthwise import cli

FAMILY = "depthwise_lstm_transformer"
COMMANDS = ("gates", "similarity")

#: What is drawn, with which options, and what the figure has to say.
FIGURES = {
    "gates": (
        ["two", "deep"],
        [],
        ["two.pt", "deep.pt", "encoder", "decoder", "input gate", "forget gate", "output gate", "cell state", "output",
         "L2 norm", "layer", "layer (halves: the cell between its attentions)"],
    ),
    "similarity": (
        ["plain", "sdt", "stock"],
        ["--side", "both"],
        ["plain.pt", "sdt.pt", "stock.pt", "encoder layer", "decoder layer", "cosine similarity", "to the embedding",
         "to the layer below", "to the mean of the sentence"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("stacks") / "data-bin", empty=[])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    found = {
        "plain": checkpoint_of(folder, FAMILY, "plain.pt"),
        "two": checkpoint_of(folder, FAMILY, "two.pt", decoder_merge="two-cells", decoder_layers=2),
        "deep": checkpoint_of(folder, FAMILY, "deep.pt", encoder_layers=12, decoder_layers=1),
        "sdt": checkpoint_of(folder, "sdt_transformer", "sdt.pt", encoder_layers=12, decoder_layers=1),
        "stock": checkpoint_of(folder, "transformer", "stock.pt"),
    }
    state = checkpoints.load_checkpoint(found["plain"])
    state["model"]["decoder.layers.1.cross_attention.output_projection.weight"].fill_(3e38)  # its products overflow
    torch.save(state, folder / "diverged.pt")
    return {**found, "diverged": str(folder / "diverged.pt")}


# --- the figure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.parametrize("name", COMMANDS)
def test_figure(
    name: str,
    suffix: str,
    models: dict[str, str],
    tmp_path: Path,
    data: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn, options, texts = FIGURES[name]
    figure = tmp_path / f"figure.{suffix}"
    command = [name, *(models[one] for one in drawn), "--data", data, *options, "--output", str(figure)]
    assert cli.main(command) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"{figure} written"
    before = figure_in(figure)
    if suffix == "svg":
        for text in texts:
            assert f">{text}<" in before.decode()

        # A figure that exists stays, unless told otherwise; it is the same again.
        assert cli.main(command) == 1
        assert f"--output {figure} exists; give another name, or --force" in capsys.readouterr().err
        assert figure.read_bytes() == before
        figure.write_bytes(b"old")
        assert cli.main([*command, "--force"]) == 0
        assert figure.read_bytes() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_figure_of_one_side_and_of_many_odd_names(name: str, tmp_path: Path, data: str) -> None:
    names = ["_$a$.pt", "$b$.pt", *(f"{number}.pt" for number in range(8))]
    paths = [checkpoint_of(tmp_path, FAMILY, one, decoder_layers=1) for one in names]
    figure = tmp_path / "figure.svg"
    assert cli.main([name, *paths, "--data", data, "--side", "decoder", "--output", str(figure)]) == 0
    for one in names:
        assert f">{one}<" in figure.read_text()
    assert ">encoder" not in figure.read_text()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{plain}", "--data", "{folder}/none"], "--data {folder}/none is not a folder"),
        (["{folder}/none.pt", "--data", "{data}"], "{folder}/none.pt does not exist"),
        (["{plain}", "{data}/dict.src.txt", "--data", "{data}"], "{data}/dict.src.txt is not a PyTorch file"),
        (["{plain}", "--data", "{data}", "--subset", "empty"], "--subset empty of {data} is empty"),
        (["{plain}", "--data", "{data}", "--subset", "no"], "--subset no: {data} has no such part for src-tgt"),
        (["{plain}", "{diverged}", "--data", "{data}", "--side", "both"],
         "{diverged} computes values in decoder layer 2 that are not finite, as after a training that diverged; give"),
        (["{plain}", "--data", "{data}", "--output", "{folder}/a"], "--output {folder}/a: the name must end in"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", COMMANDS)
def test_bad_input_is_one_sentence(
    name: str,
    arguments: list[str],
    said: str,
    models: dict[str, str],
    tmp_path: Path,
    data: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {**models, "folder": str(tmp_path), "data": data}
    assert cli.main([name, *(argument.format(**known) for argument in arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *progress, line = captured.err.splitlines()
    assert line.startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert all(one.startswith(("reading ", "  ")) for one in progress)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_side_that_is_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "a.pt", "--data", "b", "--side", "middle"])
    assert ended.value.code == 2
    assert "argument --side: invalid choice: 'middle'" in capsys.readouterr().err
