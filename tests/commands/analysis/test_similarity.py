"""``fairseq-depthwise similarity``: three forms of one result, and a model that has no such layers."""

from __future__ import annotations

import csv
import io
import json
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("similarity") / "data-bin"
    return data_in(folder, empty=[])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "depthwise": checkpoint_of(folder, "depthwise_lstm_transformer", "depthwise.pt"),
        "deep": checkpoint_of(folder, "sdt_transformer", "deep.pt", encoder_layers=12, decoder_layers=1),
        "units": checkpoint_of(folder, "mute_transformer", "units.pt"),
        "stock": checkpoint_of(folder, "transformer", "stock.pt"),
    }


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


def test_a_model_that_is_no_transformer(
    models: dict[str, str], tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lstm.pt"
    torch.save(lstm_checkpoint(models["units"]), path)
    assert similarity(path, "--data", data) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    said = "holds a model of the architecture lstm, whose encoder is no stack of Transformer layers; give"
    assert captured.err.splitlines()[-1].startswith(f"fairseq-depthwise: error: {path} {said}")


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
