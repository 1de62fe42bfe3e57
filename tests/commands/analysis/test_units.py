"""``fairseq-depthwise units``: three forms of one result, figures, and sentences about bad input."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from figure_files import figure_in
from tiny_checkpoints import tiny_checkpoint
from unit_checkpoints import SENTENCES, unit_checkpoint, unit_data, unit_model

from fairseq_compat import checkpoints
from fairseq_depthwise import cli
from fairseq_depthwise.models.mute.order import penalty

DIVERSITIES = ("attention_positions", "attention_outputs", "feed_forward_outputs")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unit_data(tmp_path_factory.mktemp("units") / "data-bin", test=SENTENCES[::-1], empty=[])


def units(*arguments: object) -> int:
    return cli.main(["units", *map(str, arguments)])


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert units(*arguments, "--json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checkpoints"]
    return found


# --- the result ------------------------------------------------------------------------------------------------------


def test_forms_agree(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [unit_checkpoint(tmp_path), unit_checkpoint(tmp_path, "shared.pt", unit_sharing="attention")]
    documents = as_json(capsys, *paths, "--data", data)
    assert units(*paths, "--data", data, "--csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert units(*paths, "--data", data) == 0
    texts = capsys.readouterr().out.split("\n\n")
    assert len(documents) == len(texts) == 2

    for path, document, text in zip(paths, documents, texts, strict=True):
        assert document["checkpoint"] == path
        assert (document["units"], document["subset"], document["sentences"]) == (4, "valid", len(SENTENCES))
        of_this = [line for line in lines if line["checkpoint"] == path]
        heading, what, _, *rows = text.strip().splitlines()
        assert heading == f"{path}: mute_transformer, 4 units in each layer"
        assert what.startswith(f"valid: 7 sentences, {document['tokens']} tokens; diversity over pairs of different")
        assert [line["layer"] for line in of_this] == [row.split()[0] for row in rows] == ["1", "2", "mean"]
        for layer, line, row in zip([*document["layers"], document["mean"]], of_this, rows, strict=True):
            values = [layer[name] for name in DIVERSITIES]
            assert [line[name] for name in DIVERSITIES] == ["" if value is None else str(value) for value in values]
            assert row.split()[1:4] == ["-" if value is None else f"{value:.3f}" for value in values]
            if "weights" in layer:
                assert [float(line[f"weight_{unit}"]) for unit in range(1, 5)] == layer["weights"]
                assert row.split()[4:] == [f"{weight:.3f}" for weight in layer["weights"]]
                assert layer["coefficients"] == layer["weights"]
                assert (layer["order"], layer["distance"], layer["penalty"]) == (None, None, None)
        for name in DIVERSITIES:
            values = [layer[name] for layer in document["layers"]]
            expected = None if None in values else pytest.approx(sum(values) / 2)
            assert document["mean"][name] == expected
    assert documents[1]["mean"]["attention_positions"] is None
    assert documents[1]["mean"]["feed_forward_outputs"] is not None


@pytest.mark.parametrize("tokens", [1, 12, 20])
def test_size_of_the_batches_does_not_matter(
    tokens: int, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unit_checkpoint(tmp_path)
    (whole,) = as_json(capsys, path, "--data", data)
    (batched,) = as_json(capsys, path, "--data", data, "--max-tokens", tokens)
    assert batched["mean"] == pytest.approx(whole["mean"], rel=1e-5)
    assert batched["tokens"] == whole["tokens"]


def test_subset_limit_and_pairs(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = unit_checkpoint(tmp_path)
    (whole,) = as_json(capsys, path, "--data", data)
    (reversed_,) = as_json(capsys, path, "--data", data, "--subset", "test")
    assert reversed_["mean"] == pytest.approx(whole["mean"], rel=1e-5)
    (few,) = as_json(capsys, path, "--data", data, "--max-sentences", 2)
    assert (few["sentences"], few["tokens"]) == (2, 7)
    (with_self,) = as_json(capsys, path, "--data", data, "--include-self")
    for one, other in zip(whole["layers"], with_self["layers"], strict=True):
        for name in DIVERSITIES[:2]:
            assert other[name] == pytest.approx(2.718281828459045**-0.25 * one[name] ** 0.75)
        # With the residual in it, units have more in common.
        assert other[DIVERSITIES[2]] < 0.95 * 2.718281828459045**-0.25 * one[DIVERSITIES[2]] ** 0.75


@pytest.mark.parametrize("at_inference", ["soft", "hard"])
def test_learned_order(at_inference: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"unit_sequential": True, "permutation_at_inference": at_inference}
    path, model = unit_checkpoint(tmp_path, **options), unit_model(**options)
    (document,) = as_json(capsys, path, "--data", data)
    for number, layer in enumerate(model.encoder.layers):
        found = document["layers"][number]
        assert sorted(found["order"]) == [1, 2, 3, 4]
        assert found["order"] == [unit + 1 for unit in layer.order.order()]
        assert found["distance"] == pytest.approx(layer.order.distance())
        assert found["penalty"] == pytest.approx(penalty(layer.order.matrix()).item())
        assert found["weights"] == layer.unit_weights.tolist()
        # The definition of the weights of places, once more: alpha_j counts 1/j for each unit up to place j.
        of_places = [sum(found["weights"][j] / (j + 1) for j in range(k, 4)) for k in range(4)]
        if at_inference == "hard":
            expected = [of_places[found["order"].index(unit)] for unit in range(1, 5)]
        else:
            expected = (layer.order.matrix() @ torch.tensor(of_places)).tolist()
        assert found["coefficients"] == pytest.approx(expected, rel=1e-5)
    assert units(path, "--data", data) == 0
    row = capsys.readouterr().out.splitlines()[3].split()
    first = document["layers"][0]
    assert row[4:8] == [f"{weight:.3f}" for weight in first["weights"]]
    assert row[8:12] == [f"{weight:.3f}" for weight in first["coefficients"]]
    assert row[12:] == [*map(str, first["order"]), f"{first['distance']:.3f}", f"{first['penalty']:.3f}"]
    assert units(path, "--data", data, "--csv") == 0
    line = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (line["order"], line["penalty"]) == (" ".join(map(str, first["order"])), str(first["penalty"]))


def test_learned_order_without_scipy(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert units(unit_checkpoint(tmp_path, unit_sequential=True), "--data", data) == 1
    assert "the learned order needs scipy; pip install" in capsys.readouterr().err


def test_progress_is_on_stderr_and_logs_are_as_before(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unit_checkpoint(tmp_path)
    assert units(path, "--data", data, "--max-tokens", 1) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"reading {path}"
    assert lines[-1] == "  6 of 6 batches"
    assert len(lines) == 7


def test_the_installed_command(tmp_path: Path, data: str) -> None:
    path = unit_checkpoint(tmp_path)
    command = [sys.executable, "-m", "fairseq_depthwise.cli", "units", path, "--data", data]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["checkpoints"][0]["sentences"] == 7
    failed = subprocess.run([*command, "--subset", "no"], capture_output=True, text=True, timeout=120, check=False)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.splitlines()[-1].startswith("fairseq-depthwise: error: --subset no: ")


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_figures(suffix: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        unit_checkpoint(tmp_path), unit_checkpoint(tmp_path, "shared.pt", unit_sharing="attention", encoder_layers=3),
    ]  # fmt: skip
    weights, attention = tmp_path / f"weights.{suffix}", tmp_path / f"attention.{suffix}"
    command = [*paths, "--data", data, "--output", weights, "--sentence-index", 2, "--attention-output", attention]
    assert units(*command) == 0
    assert capsys.readouterr().err.splitlines()[-2:] == [f"{weights} written", f"{attention} written"]
    before = {path: figure_in(path) for path in (weights, attention)}
    if suffix == "svg":
        for text in ("w5", "w6", "&lt;/s&gt;", "unit 4", "all units", "mute.pt, layer 2", "shared.pt, layer 3"):
            assert f">{text}<" in before[attention].decode()
        for text in ("mute.pt", "shared.pt", "layer", "unit"):
            assert f">{text}<" in before[weights].decode()
    assert not list(tmp_path.glob("*.fairseq-unfinished"))

    # A figure that exists stays, unless told otherwise; it is the same again.
    assert units(*command) == 1
    assert f"--output {weights} exists; give another name, or --force" in capsys.readouterr().err
    for path in before:
        path.write_bytes(b"old")
    assert units(*command, "--force") == 0
    assert {path: path.read_bytes() for path in before} == before


def test_figures_of_a_learned_order_and_of_odd_names(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "$a$"
    folder.mkdir()
    paths = [unit_checkpoint(tmp_path, encoder_units=2), unit_checkpoint(folder, unit_sequential=True)]
    weights, attention = tmp_path / "weights.svg", tmp_path / "attention.svg"
    sentence = ["--sentence", "w1 w2 $x$", "--layer", 1, "--attention-output", attention]
    assert units(*paths, "--data", data, "--output", weights, *sentence) == 0
    for text in (">mute.pt<", ">$a$/mute.pt<", ">place<", ">unit<"):
        assert text in weights.read_text()
    for text in ("$a$/mute.pt, layer 1", "&lt;unk&gt;"):
        assert text in attention.read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("figure.bmp", "--output {folder}/figure.bmp: the name must end in one of .png, .pdf, .svg"),
        ("figure", "--output {folder}/figure: the name must end in one of .png, .pdf, .svg"),
        ("none/figure.png", "--output {folder}/none/figure.png: the folder {folder}/none does not exist"),
    ],
)
def test_figures_that_cannot_be_written(
    name: str, said: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unit_checkpoint(tmp_path)
    assert units(path, "--data", data, "--output", tmp_path / name) == 1
    captured = capsys.readouterr()
    assert captured.err == f"fairseq-depthwise: error: {said.format(folder=tmp_path)}\n"
    assert captured.out == ""


def test_figures_without_matplotlib(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = unit_checkpoint(tmp_path)
    assert units(path, "--data", data, "--output", tmp_path / "weights.png") == 1
    assert "--output needs matplotlib; pip install 'fairseq-depthwise[analysis]'" in capsys.readouterr().err
    assert units(path, "--data", data) == 0


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{mute}", "--data", "{folder}/none"], "--data {folder}/none is not a folder"),
        (["{mute}", "--data", "{folder}"], "{folder}/dict.src.txt does not exist"),
        (["{folder}/none.pt", "--data", "{data}"], "{folder}/none.pt does not exist"),
        (["{other}", "--data", "{data}"], "{other} holds a model of the architecture sdt_transformer; it must be mute"),
        (["{mute}", "{single}", "--data", "{data}"], "{single} has one unit in each layer, and so no pairs to compare"),
        (["{mute}", "--data", "{larger}"], "--data {larger}: the source dictionary has 14 entries"),
        (["{mute}", "--data", "{data}", "--subset", "empty"], "--subset empty of {data} is empty"),
        (["{mute}", "--data", "{data}", "--subset", "train"], "--subset train: {data} has no such part for src-tgt"),
        (["{mute}", "--data", "{data}", "--layer", "1"], "--layer is for --attention-output FIGURE"),
        (["{mute}", "--data", "{data}", "--sentence", "a"], "--sentence is for --attention-output FIGURE"),
        (["{mute}", "--data", "{data}", "--attention-output", "a.png"], "--attention-output a.png needs a sentence"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints.save(tiny_checkpoint()[0], tmp_path / "other.pt")
    known = {
        "folder": str(tmp_path),
        "data": data,
        "larger": unit_data(tmp_path / "larger", entries=14),
        "mute": unit_checkpoint(tmp_path),
        "single": unit_checkpoint(tmp_path, "single.pt", encoder_units=1),
        "other": str(tmp_path / "other.pt"),
    }
    assert units(*(argument.format(**known) for argument in arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *progress, line = captured.err.splitlines()
    assert line.startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert all(one.startswith(("reading ", "  ")) for one in progress)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sentence-index", "7"], "--sentence-index 7 is out of range; --subset valid of {data} has the sentences 0"),
        (["--sentence-index", "-1"], "--sentence-index -1 is out of range"),
        (["--sentence", " "], "--sentence is empty"),
        (["--sentence", "w1", "--layer", "3"], "--layer 3 is out of range; the encoder of {mute} has 2 layers"),
        (["--sentence", "w1", "--output", "{figure}"], "--output and --attention-output are both {figure}"),
    ],
)
def test_bad_sentences_and_layers(
    arguments: list[str], said: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"data": data, "mute": unit_checkpoint(tmp_path), "figure": str(tmp_path / "attention.png")}
    given = [argument.format(**known) for argument in arguments]
    assert units(known["mute"], "--data", data, "--attention-output", known["figure"], *given) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    assert not Path(known["figure"]).exists()
