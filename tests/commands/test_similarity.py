"""``fairseq-depthwise similarity``: three forms of one result, a figure, and sentences about bad input."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.lstm import LSTMModel, base_architecture
from probe_checkpoints import checkpoint_of, data_in
from tiny_models import task_of

from fairseq_compat import checkpoints
from fairseq_depthwise import cli

MEASURES = ("emb_similarity", "adjacent_similarity", "inter_similarity")
SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("similarity") / "data-bin"
    return data_in(folder, empty=[])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    found = {
        "depthwise": checkpoint_of(folder, "depthwise_lstm_transformer", "depthwise.pt"),
        "deep": checkpoint_of(folder, "sdt_transformer", "deep.pt", encoder_layers=12, decoder_layers=1),
        "units": checkpoint_of(folder, "mute_transformer", "units.pt"),
        "stock": checkpoint_of(folder, "transformer", "stock.pt"),
    }
    state = checkpoints.load_checkpoint(found["depthwise"])
    state["model"]["encoder.layers.2.cell.hidden_net.second.weight"].fill_(math.nan)
    torch.save(state, folder / "diverged.pt")
    return {**found, "diverged": str(folder / "diverged.pt")}


def similarity(*arguments: object) -> int:
    return cli.main(["similarity", *map(str, arguments)])


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert similarity(*arguments, "--json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checkpoints"]
    return found


# --- the result ------------------------------------------------------------------------------------------------------


def test_forms_agree(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("depthwise", "units", "stock")
    paths = [models[name] for name in names]
    documents = as_json(capsys, *paths, "--data", data, "--side", "both")
    assert similarity(*paths, "--data", data, "--side", "both", "--csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert similarity(*paths, "--data", data, "--side", "both") == 0
    texts = capsys.readouterr().out.split("\n\n")
    assert len(documents) == len(texts) == 3

    architectures = ("depthwise_lstm_transformer", "mute_transformer", "transformer")
    for path, architecture, document, text in zip(paths, architectures, documents, texts, strict=True):
        assert (document["checkpoint"], document["architecture"]) == (path, architecture)
        assert (document["subset"], document["sentences"]) == ("valid", 6)
        heading, what, *rest = text.strip().splitlines()
        assert (heading, what) == (f"{path}: {architecture}", "valid: 6 sentences")
        for side in ("encoder", "decoder"):
            layers = document[side]["layers"]
            title, names_of_columns, *rows = rest[: len(layers) + 2]
            del rest[: len(layers) + 2]
            assert title == f"{side}: {document[side]['tokens']} tokens"
            assert names_of_columns.split("  ")[0] == "layer"
            of_this = [line for line in lines if (line["checkpoint"], line["side"]) == (path, side)]
            for number, (layer, line, row) in enumerate(zip(layers, of_this, rows, strict=True)):
                values = [layer[measure] for measure in MEASURES]
                assert layer["layer"] == int(line["layer"]) == int(row.split()[0]) == number
                assert [line[measure] for measure in MEASURES] == ["" if one is None else str(one) for one in values]
                assert row.split()[1:] == ["-" if one is None else f"{one:.3f}" for one in values]
                assert all(value is None or -1 <= value <= 1 + 1e-9 for value in values)
            assert layers[0]["emb_similarity"] == pytest.approx(1)
            assert layers[0]["adjacent_similarity"] is None
            assert layers[1]["adjacent_similarity"] == layers[1]["emb_similarity"]
        assert rest == []


def test_the_encoder_is_the_default(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    (both,) = as_json(capsys, models["deep"], "--data", data, "--side", "both")
    (default,) = as_json(capsys, models["deep"], "--data", data)
    (decoder,) = as_json(capsys, models["deep"], "--data", data, "--side", "decoder")
    assert default["encoder"] == both["encoder"]
    assert decoder["decoder"] == both["decoder"]
    assert "decoder" not in default
    assert "encoder" not in decoder
    assert len(both["encoder"]["layers"]) == 13


def test_batches_subset_and_limit(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    (whole,) = as_json(capsys, models["units"], "--data", data)
    (batched,) = as_json(capsys, models["units"], "--data", data, "--max-tokens", 7)
    for one, other in zip(whole["encoder"]["layers"], batched["encoder"]["layers"], strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    (test,) = as_json(capsys, models["units"], "--data", data, "--subset", "test")
    assert (test["subset"], test["sentences"]) == ("test", 8)
    (few,) = as_json(capsys, models["units"], "--data", data, "--max-sentences", 2)
    assert few["sentences"] == 2
    assert few["encoder"]["tokens"] < whole["encoder"]["tokens"]


def test_the_installed_command(models: dict[str, str], data: str) -> None:
    command = [sys.executable, "-m", "fairseq_depthwise.cli", "similarity", models["units"], "--data", data, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["checkpoints"][0]["sentences"] == 6
    assert done.stderr.splitlines() == [f"reading {models['units']}", "  1 of 1 batches"]


# --- the figure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_figure(
    suffix: str, models: dict[str, str], tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / f"similarity.{suffix}"
    paths = [models["depthwise"], models["deep"], models["stock"]]
    command = [*paths, "--data", data, "--side", "both", "--output", figure]
    assert similarity(*command) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"{figure} written"
    before = figure.read_bytes()
    assert before.startswith(SIGNATURES[suffix])
    if suffix == "png":
        from matplotlib.image import imread

        assert imread(figure).std() > 0.05
    if suffix == "svg":
        texts = ["depthwise.pt", "deep.pt", "stock.pt", "encoder layer", "decoder layer", "cosine similarity"]
        for text in [*texts, "to the embedding", "to the layer below", "to the mean of the sentence"]:
            assert f">{text}<" in before.decode()

        # A figure that exists stays, unless told otherwise; it is the same again.
        assert similarity(*command) == 1
        assert f"--output {figure} exists; give another name, or --force" in capsys.readouterr().err
        assert figure.read_bytes() == before
        figure.write_bytes(b"old")
        assert similarity(*command, "--force") == 0
        assert figure.read_bytes() == before


def test_many_lines_and_odd_names(tmp_path: Path, data: str) -> None:
    names = ["$a$.pt", "_b.pt", *(f"{number}.pt" for number in range(8))]
    paths = [checkpoint_of(tmp_path, "depthwise_lstm_transformer", name, encoder_layers=1) for name in names]
    figure = tmp_path / "similarity.svg"
    assert similarity(*paths, "--data", data, "--output", figure) == 0
    for name in names:
        assert f">{name}<" in figure.read_text()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{units}", "--data", "{folder}/none"], "--data {folder}/none is not a folder"),
        (["{folder}/none.pt", "--data", "{data}"], "{folder}/none.pt does not exist"),
        (["{units}", "{data}/dict.src.txt", "--data", "{data}"], "{data}/dict.src.txt is not a PyTorch file"),
        (["{units}", "--data", "{data}", "--subset", "empty"], "--subset empty of {data} is empty"),
        (["{units}", "--data", "{data}", "--subset", "no"], "--subset no: {data} has no such part for src-tgt"),
        (["{lstm}", "--data", "{data}"],
         "{lstm} holds a model of the architecture lstm, whose encoder is no stack of Transformer layers; give"),
        (["{units}", "{diverged}", "--data", "{data}"],
         "{diverged} computes values in encoder layer 3 that are not finite, as after a training that diverged; give"),
        (["{units}", "--data", "{data}", "--output", "{folder}/a"], "--output {folder}/a: the name must end in"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    arguments: list[str],
    said: str,
    models: dict[str, str],
    tmp_path: Path,
    data: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {**models, "folder": str(tmp_path), "data": data, "lstm": str(tmp_path / "lstm.pt")}
    torch.save(lstm_checkpoint(models["units"]), known["lstm"])
    assert similarity(*(argument.format(**known) for argument in arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *progress, line = captured.err.splitlines()
    assert line.startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert all(one.startswith(("reading ", "  ")) for one in progress)


def lstm_checkpoint(like: str) -> dict[str, Any]:
    """fairseq's recurrent model in a checkpoint that is otherwise like another."""
    args = Namespace(
        encoder_embed_dim=8, encoder_hidden_size=8, decoder_embed_dim=8, decoder_hidden_size=8,
        decoder_out_embed_dim=8, arch="lstm", _name="lstm", criterion="cross_entropy",
    )  # fmt: skip
    base_architecture(args)
    state = checkpoints.load_checkpoint(like)
    model = LSTMModel.build_model(args, task_of())
    return {**state, "cfg": {**state["cfg"], "model": vars(args)}, "model": model.state_dict()}


def test_a_side_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        similarity("a.pt", "--data", "b", "--side", "middle")
    assert ended.value.code == 2
    assert "argument --side: invalid choice: 'middle'" in capsys.readouterr().err


def test_help_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        similarity("--help")
    assert ended.value.code == 0
    assert "example:\n  fairseq-depthwise similarity" in capsys.readouterr().out
