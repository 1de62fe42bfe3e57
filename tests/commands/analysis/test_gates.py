"""``fairseq-depthwise gates``: both forms of one result for both kinds, and models that have nothing to show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figure_files import figure_in
from probe_checkpoints import checkpoint_of

from fairseq_compat import checkpoints

FAMILY = "depthwise_lstm_transformer"
GATES = ("input_gate", "forget_gate", "output_gate")
NORMS = ("cell_norm", "output_norm")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "plain": checkpoint_of(folder, FAMILY, "plain.pt"),
        "two": checkpoint_of(folder, FAMILY, "two.pt", decoder_merge="two-cells", decoder_layers=2),
        "stock": checkpoint_of(folder, "transformer", "stock.pt"),
    }


def cells_of_text(cell: dict[str, Any]) -> str:
    """A row of the printed table, its spaces removed."""
    text = f"{cell['layer']}{cell['cell'] or ''}"
    for gate in GATES:
        one = cell[gate]
        text += f"{one['mean']:.3f}±{one['deviation']:.3f}{one['shut']:.0%}{one['open']:.0%}"
    return text + "".join(f"{cell[norm]['mean']:.2f}±{cell[norm]['deviation']:.2f}" for norm in NORMS)


def test_forms_agree(
    models: dict[str, str], data: str, tmp_path: Path, printed: Callable[..., str], document: Callable[..., Any]
) -> None:
    paths = [models["plain"], models["two"]]
    command = ["gates", *paths, "--data", data]
    documents = document(*command)["checkpoints"]
    texts = printed(*command, "--output", tmp_path / "figure.svg").split("\n\n")
    for label in ("plain", "two", "forget gate", "cell state", "L2 norm"):
        assert f">{label}<" in figure_in(tmp_path / "figure.svg").decode()
    for path, found, text in zip(paths, documents, texts, strict=True):
        assert (found["checkpoint"], found["architecture"]) == (path, FAMILY)
        assert (found["subset"], found["sentences"]) == ("valid", 6)
        rows = [line.replace(" ", "") for line in text.splitlines()]
        for side in ("encoder", "decoder"):
            for cell in found[side]["layers"]:
                assert cells_of_text(cell) in rows
                for gate in GATES:
                    assert 0 < cell[gate]["mean"] < 1
                    assert 0 < cell[gate]["deviation"] < 0.5
    cells = [(one["layer"], one["cell"]) for one in documents[1]["decoder"]["layers"]]
    assert cells == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert {one["cell"] for one in documents[1]["encoder"]["layers"]} == {None}


def test_weights_of_connections(
    tmp_path: Path, data: str, printed: Callable[..., str], document: Callable[..., Any]
) -> None:
    options = {"encoder_connection": "average", "encoder_block_size": 0, "encoder_layers": 4}
    path = checkpoint_of(tmp_path, "sdt_transformer", "connected.pt", **options)
    (found,) = document("gates", path, "--data", data, "--output", tmp_path / "weights.svg")["checkpoints"]
    top = [row["weight"]["mean"] for row in found["encoder"]["layers"] if row["layer"] == "output"]
    free = checkpoints.load_checkpoint(path)["model"]["encoder.connection.rows.3"]
    assert top == pytest.approx(free.tolist(), abs=1e-5)
    assert f"{top[0]:.3f}" in printed("gates", path, "--data", data)
    for label in ("layer 1", "output"):
        assert f">{label}<" in figure_in(tmp_path / "weights.svg").decode()
    (ablated,) = document("gates", path, "--data", data, "--ablate")["checkpoints"]
    row = ablated["encoder"]["layers"][0]
    assert f"{row['weight']['mean']:.3f} ({row['cost']:+.3f})" in printed("gates", path, "--data", data, "--ablate")


def test_gates_have_no_sources(models: dict[str, str], data: str, refusal: Callable[..., str]) -> None:
    assert "--ablate" in refusal("gates", models["plain"], "--data", data, "--ablate")
