"""``fairseq-depthwise gates``: three forms of one result, and models that have no gates."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of, data_in

from fairseq_compat import checkpoints
from fairseq_depthwise import cli

FAMILY = "depthwise_lstm_transformer"
GATES = ("input_gate", "forget_gate", "output_gate")
NORMS = ("cell_norm", "output_norm")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("gates") / "data-bin", empty=[])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> checkpoint."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "plain": checkpoint_of(folder, FAMILY, "plain.pt"),
        "two": checkpoint_of(folder, FAMILY, "two.pt", decoder_merge="two-cells", decoder_layers=2),
        "rnn": checkpoint_of(folder, FAMILY, "rnn.pt", depthwise_cell="rnn"),
        "sdt": checkpoint_of(folder, "sdt_transformer", "sdt.pt"),
    }


def gates(*arguments: object) -> int:
    return cli.main(["gates", *map(str, arguments)])


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert gates(*arguments, "--json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checkpoints"]
    return found


# --- the result ------------------------------------------------------------------------------------------------------


def cells_of_text(cell: dict[str, Any]) -> str:
    """A row of the printed table, its spaces removed."""
    text = f"{cell['layer']}{cell['cell'] or ''}"
    for gate in GATES:
        one = cell[gate]
        text += f"{one['mean']:.3f}±{one['deviation']:.3f}{one['shut']:.0%}{one['open']:.0%}"
    return text + "".join(f"{cell[norm]['mean']:.2f}±{cell[norm]['deviation']:.2f}" for norm in NORMS)


def test_forms_agree(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [models["plain"], models["two"]]
    documents = as_json(capsys, *paths, "--data", data)
    assert gates(*paths, "--data", data, "--csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert gates(*paths, "--data", data) == 0
    texts = capsys.readouterr().out.split("\n\n")
    assert len(documents) == len(texts) == 2

    for path, document, text in zip(paths, documents, texts, strict=True):
        assert (document["checkpoint"], document["architecture"]) == (path, FAMILY)
        assert (document["subset"], document["sentences"]) == ("valid", 6)
        expected = []
        for side in ("encoder", "decoder"):
            expected += [f"{side}: {document[side]['tokens']} tokens", None]
            of_this = [line for line in lines if (line["checkpoint"], line["side"]) == (path, side)]
            for cell, line in zip(document[side]["layers"], of_this, strict=True):
                expected.append(cells_of_text(cell))
                assert (line["layer"], line["cell"]) == (str(cell["layer"]), cell["cell"] or "")
                for name, values in cell.items():
                    if isinstance(values, dict):
                        assert {part: line[f"{name}_{part}"] for part in values} == {
                            part: str(value) for part, value in values.items()
                        }
                for gate in GATES:
                    assert 0 < cell[gate]["mean"] < 1
                    assert 0 < cell[gate]["deviation"] < 0.5
        heading, *_ = printed = text.strip().splitlines()
        assert heading == f"{path}: {FAMILY}"
        two_cells = "two cells in a layer: a between its attentions, b above both" in printed
        assert two_cells == (path == models["two"])
        for line, row in zip(printed[-len(expected) :], expected, strict=True):
            assert row in (None, line, line.replace(" ", ""))
    assert [(one["layer"], one["cell"]) for one in documents[1]["decoder"]["layers"]] == [
        (1, "a"), (1, "b"), (2, "a"), (2, "b"),
    ]  # fmt: skip
    assert {one["cell"] for one in documents[1]["encoder"]["layers"]} == {None}


def test_one_side(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    (both,) = as_json(capsys, models["plain"], "--data", data)
    for side, other in (("encoder", "decoder"), ("decoder", "encoder")):
        (one,) = as_json(capsys, models["plain"], "--data", data, "--side", side)
        assert one[side] == both[side]
        assert other not in one


def test_the_order_of_the_gates(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Gates that depend on nothing: no scale in their norms, and shifts of -3, 0 and 3."""
    path = checkpoint_of(tmp_path, FAMILY)
    state = checkpoints.load_checkpoint(path)
    for name, value in state["model"].items():
        if name.endswith("gates.norm_weight"):
            value.zero_()
        if name.endswith("gates.norm_bias"):
            value.copy_(torch.tensor([[-3.0], [0.0], [3.0]]).expand_as(value))
    torch.save(state, path)
    (document,) = as_json(capsys, path, "--data", data)
    for side in ("encoder", "decoder"):
        for cell in document[side]["layers"]:
            for gate, mean, shut, open_ in zip(GATES, (0.04743, 0.5, 0.95257), (1, 0, 0), (0, 0, 1), strict=True):
                assert cell[gate] == {
                    "mean": pytest.approx(mean, abs=1e-5), "deviation": pytest.approx(0, abs=1e-6), "shut": shut,
                    "open": open_,
                }  # fmt: skip
            assert cell["output_norm"]["mean"] == pytest.approx(0.95257 * cell["cell_norm"]["mean"], rel=1e-4)


def test_batches_do_not_matter(models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    (whole,) = as_json(capsys, models["two"], "--data", data)
    (batched,) = as_json(capsys, models["two"], "--data", data, "--max-tokens", 7)
    for side in ("encoder", "decoder"):
        assert whole[side]["tokens"] == batched[side]["tokens"]
        for one, other in zip(whole[side]["layers"], batched[side]["layers"], strict=True):
            for name in (*GATES, *NORMS):
                assert one[name] == pytest.approx(other[name], rel=1e-5)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("sdt", "holds a model of the architecture sdt_transformer; it must be depthwise_lstm_transformer or a preset"),
        ("rnn", "has the cells of --depthwise-cell rnn, which have no gates"),
    ],
)
def test_models_without_gates(
    model: str, said: str, models: dict[str, str], data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gates(models["plain"], models[model], "--data", data) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"fairseq-depthwise: error: {models[model]} {said}")
