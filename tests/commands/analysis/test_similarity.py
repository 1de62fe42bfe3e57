"""``fairseq-depthwise similarity``: three forms of one result, and a model that has no such layers."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.lstm import LSTMModel, base_architecture
from probe_checkpoints import checkpoint_of
from tiny_models import task_of

from fairseq_compat import checkpoints

MEASURES = ("emb_similarity", "adjacent_similarity", "inter_similarity")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Architecture -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    kinds = ("depthwise_lstm_transformer", "mute_transformer", "transformer")
    return {kind: checkpoint_of(folder, kind, f"{kind}.pt") for kind in kinds}


def test_forms_agree(
    models: dict[str, str], data: str, printed: Callable[..., str], document: Callable[..., Any]
) -> None:
    command = ["similarity", *models.values(), "--data", data, "--side", "both"]
    documents = document(*command)["checkpoints"]
    lines = list(csv.DictReader(io.StringIO(printed(*command, "--csv"))))
    texts = printed(*command).split("\n\n")
    for (kind, path), found, text in zip(models.items(), documents, texts, strict=True):
        assert (found["checkpoint"], found["architecture"]) == (path, kind)
        assert (found["subset"], found["sentences"]) == ("valid", 6)
        rows = [line.split() for line in text.splitlines() if line.split()[0].isdigit()]
        of_this = [line for line in lines if line["checkpoint"] == path]
        sides = [(side, layer) for side in ("encoder", "decoder") for layer in found[side]["layers"]]
        for (side, layer), line, row in zip(sides, of_this, rows, strict=True):
            values = [layer[measure] for measure in MEASURES]
            assert (line["side"], layer["layer"]) == (side, int(line["layer"]))
            assert [line[measure] for measure in MEASURES] == ["" if one is None else str(one) for one in values]
            assert row == [line["layer"], *("-" if one is None else f"{one:.3f}" for one in values)]
            assert all(value is None or -1 <= value <= 1 + 1e-9 for value in values)
        for side in ("encoder", "decoder"):
            first, second, *_ = found[side]["layers"]
            assert (first["emb_similarity"], first["adjacent_similarity"]) == (pytest.approx(1), None)
            assert second["adjacent_similarity"] == second["emb_similarity"]


def test_sides_batches_subset_and_limit(models: dict[str, str], data: str, document: Callable[..., Any]) -> None:
    def found(*options: object) -> Any:
        (one,) = document("similarity", models["mute_transformer"], "--data", data, *options)["checkpoints"]
        return one

    both, default, decoder = found("--side", "both"), found(), found("--side", "decoder")
    assert (default["encoder"], decoder["decoder"]) == (both["encoder"], both["decoder"])
    assert "decoder" not in default
    assert "encoder" not in decoder
    for one, other in zip(default["encoder"]["layers"], found("--max-tokens", 7)["encoder"]["layers"], strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    test, few = found("--subset", "test"), found("--max-sentences", 2)
    assert (test["subset"], test["sentences"], few["sentences"]) == ("test", 8, 2)
    assert few["encoder"]["tokens"] < default["encoder"]["tokens"]


def test_a_model_that_is_no_transformer_is_refused(
    models: dict[str, str], tmp_path: Path, data: str, refusal: Callable[..., str]
) -> None:
    """fairseq's recurrent model, in a checkpoint that is otherwise like another."""
    args = Namespace(
        encoder_embed_dim=8, encoder_hidden_size=8, decoder_embed_dim=8, decoder_hidden_size=8,
        decoder_out_embed_dim=8, arch="lstm", _name="lstm", criterion="cross_entropy",
    )  # fmt: skip
    base_architecture(args)
    state = checkpoints.load_checkpoint(models["transformer"])
    state["cfg"]["model"], state["model"] = vars(args), LSTMModel.build_model(args, task_of()).state_dict()
    torch.save(state, tmp_path / "recurrent.pt")
    sentence = refusal("similarity", tmp_path / "recurrent.pt", "--data", data)
    assert sentence.startswith(f"{tmp_path}/recurrent.pt ")
    assert " lstm" in sentence
