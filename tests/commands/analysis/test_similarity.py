"""``fairseq-depthwise similarity``: both forms of one result with its figure, the choice of data, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figure_files import figure_in
from probe_checkpoints import checkpoint_of

MEASURES = ("emb_similarity", "adjacent_similarity", "inter_similarity")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Architecture -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: checkpoint_of(folder, kind, f"{kind}.pt") for kind in ("mute_transformer", "transformer")}


def test_forms_agree(
    models: dict[str, str], data: str, tmp_path: Path, printed: Callable[..., str], document: Callable[..., Any]
) -> None:
    command = ["similarity", *models.values(), "--data", data, "--side", "both"]
    documents = document(*command)["checkpoints"]
    texts = printed(*command, "--output", tmp_path / "figure.svg").split("\n\n")
    for (kind, path), found, text in zip(models.items(), documents, texts, strict=True):
        assert (found["checkpoint"], found["architecture"]) == (path, kind)
        assert (found["subset"], found["sentences"]) == ("valid", 6)
        rows = [line.split() for line in text.splitlines() if line.split()[0].isdigit()]
        layers = [layer for side in ("encoder", "decoder") for layer in found[side]["layers"]]
        for layer, row in zip(layers, rows, strict=True):
            values = [layer[measure] for measure in MEASURES]
            assert row == [str(layer["layer"]), *("-" if one is None else f"{one:.3f}" for one in values)]
            assert all(value is None or -1 <= value <= 1 + 1e-9 for value in values)
    for text in ("mute_transformer", "cosine similarity", "to the embedding", "decoder layer"):
        assert f">{text}<" in figure_in(tmp_path / "figure.svg").decode()


def test_sides_subset_and_limit(models: dict[str, str], data: str, document: Callable[..., Any]) -> None:
    def found(*options: object) -> Any:
        (one,) = document("similarity", models["mute_transformer"], "--data", data, *options)["checkpoints"]
        return one

    both, default, decoder = found("--side", "both"), found(), found("--side", "decoder")
    assert (default["encoder"], decoder["decoder"]) == (both["encoder"], both["decoder"])
    assert ("decoder" in default, "encoder" in decoder) == (False, False)
    test, few = found("--subset", "test"), found("--max-sentences", 2)
    assert (test["subset"], test["sentences"], few["sentences"]) == ("test", 8, 2)
    assert few["encoder"]["tokens"] < default["encoder"]["tokens"]
