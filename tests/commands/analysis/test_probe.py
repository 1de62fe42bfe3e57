"""``fairseq-depthwise probe``: three forms of one table, a figure, and sentences about bad input."""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY
from probe_checkpoints import TASK, checkpoint_of, data_in
from tiny_models import task_of

from fairseq_depthwise import cli
from fairseq_depthwise.analysis.probe.probe import ProbedModel
from fairseq_depthwise.analysis.probe.record import ProbeRow
from fairseq_depthwise.analysis.probe.report import as_text, write_probe

DEPTHWISE = "depthwise_lstm_transformer"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("probe") / "data-bin", empty=[])


def trained(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint whose translations end after a few steps: untrained models know no end."""
    return checkpoint_of(folder, kind, name, **{"max_target_positions": 12, **options})


def probe(*arguments: object) -> int:
    """chrF, because the BLEU of untrained models is 0."""
    return cli.main(["probe", *map(str, arguments)])


def quick(path: str, data: str, output: Path) -> list[object]:
    return [path, "--data", data, "--output", output, "--beam", 1, "--metric", "chrf", "--cpu"]


# --- the result ------------------------------------------------------------------------------------------------------


def test_forms_agree(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained(tmp_path, DEPTHWISE)
    command = [*quick(path, data, tmp_path / "probe"), "--layers", "encoder.1,decoder.3"]
    assert probe(*command, "--json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    said = captured.err.splitlines()
    assert said[0] == f"probing {path}"
    assert any(line.startswith("fitting 2 layers on ") for line in said)
    assert "encoder.1, pair: chrF" in captured.err
    assert said[-1] == f"table and figure are in {tmp_path / 'probe'}"

    assert probe(*command, "--csv") == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert probe(*command) == 0
    text = capsys.readouterr().out
    folder = tmp_path / "probe"
    assert (folder / "table.txt").read_text() == text
    assert json.loads((folder / "table.json").read_text()) == document
    assert list(csv.DictReader((folder / "table.csv").read_text().splitlines())) == lines

    (model,) = document["models"]
    assert (model["checkpoint"], model["architecture"], model["metric"]) == (path, DEPTHWISE, "chrF2")
    rows = model["rows"]
    assert [(row["layer"], row["state"]) for row in rows] == [
        ("none", ""), ("encoder.1", "pair"), ("decoder.3", "pair"), ("encoder.1", "output"), ("decoder.3", "output"),
    ]  # fmt: skip
    assert (rows[0]["change"], rows[0]["error"], model["score"]) == (0, None, rows[0]["score"])
    for row, line in zip(rows, lines, strict=True):
        assert {name: "" if value is None else str(value) for name, value in row.items()} | {"checkpoint": path} == line
        assert row["change"] == pytest.approx(100 * (row["score"] / model["score"] - 1))
    pair, output = text.split("\n\n")
    assert pair.startswith(f"{path}: {DEPTHWISE}, (Out, Cell) linear\n{model['signature']}\n")
    assert output.startswith(f"{path}: {DEPTHWISE}, Out linear, Cell passed on\n")
    for part, state in ((pair, "pair"), (output, "output")):
        _, _, _, none, first, third = part.strip().splitlines()
        score = f"{model['score']:.2f}"
        assert none.split() == ["none", score, "0.00", "-", score, "0.00", "-"]
        encoder, decoder = (
            [f"{row['score']:.2f}", f"{row['change']:+.2f}", f"{100 * row['unexplained']:.2f}"]
            for row in rows
            if row["state"] == state
        )
        assert first.split() == ["1", *encoder, "-", "-", "-"]
        assert third.split() == ["3", "-", "-", "-", *decoder]


def test_figure(tmp_path: Path, data: str) -> None:
    """Of two models of one name, side by side."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = trained(tmp_path / "a", DEPTHWISE), trained(tmp_path / "b", "transformer")
    command = [*quick(paths[0], data, tmp_path / "probe"), "--compare", paths[1], "--layers", "encoder.1,decoder.2"]
    assert probe(*command) == 0
    figure = tmp_path / "probe/figure.svg"
    text = figure.read_text()
    labels = ("a/model.pt, (Out, Cell) linear", "a/model.pt, Out linear, Cell passed on", "b/model.pt")
    for label in (*labels, "encoder", "decoder", "layer made linear", "change of chrF2 (%)"):
        assert f">{label}<" in text, label
    assert probe(*command) == 0
    assert figure.read_text() == text
    assert [(tmp_path / f"probe/figure.{form}").read_bytes()[:4] for form in ("pdf", "png")] == [b"%PDF", b"\x89PNG"]
    assert not list(tmp_path.rglob("*.fairseq-unfinished"))


def test_another_model_beside_it(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = trained(tmp_path, DEPTHWISE), trained(tmp_path, "transformer", "stock.pt")
    command = [*quick(path, data, tmp_path / "probe"), "--layers", "encoder.2", "--probe-state", "output"]
    assert probe(*command, "--compare", other, "--json", "--no-checkpoints") == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [(model["checkpoint"], [(row["layer"], row["state"]) for row in model["rows"]]) for model in models] == [
        (path, [("none", ""), ("encoder.2", "output")]),
        (other, [("none", ""), ("encoder.2", "")]),
    ]
    assert sorted(one.name for one in (tmp_path / "probe").rglob("*.pt")) == ["maps.pt", "maps.pt"]

    # Checkpoints can be asked for later; what is there is not done again.
    assert probe(*command, "--compare", other) == 0
    captured = capsys.readouterr()
    assert "fitting" not in captured.err
    assert "chrF2 " not in captured.err
    assert (tmp_path / "probe/checkpoints/encoder.2.output.pt").is_file()
    assert (tmp_path / "probe/compared/checkpoints/encoder.2.pt").is_file()


def test_a_score_of_nothing_has_no_change(tmp_path: Path) -> None:
    rows = tuple(ProbeRow(layer, "", 0.0, "BLEU", "signature") for layer in ("none", "encoder.1", "encoder.2"))
    model = ProbedModel("model.pt", "transformer", {"encoder": 2, "decoder": 2}, rows)
    assert model.change(rows[1]) is None
    assert as_text([model]).splitlines()[-1].split() == ["2", "0.00", "-", "-", "-", "-", "-"]
    write_probe(str(tmp_path / "figure.svg"), [model], ["model.pt"])
    text = (tmp_path / "figure.svg").read_text()
    assert ">encoder<" in text
    assert ">decoder<" not in text


# --- bad input -------------------------------------------------------------------------------------------------------


def fconv(folder: Path) -> str:
    """A checkpoint of a convolutional model."""
    args = Namespace(
        _name="fconv", arch="fconv", encoder_embed_dim=8, decoder_embed_dim=8, decoder_out_embed_dim=8,
        encoder_layers="[(8, 3)]", decoder_layers="[(8, 3)]", max_source_positions=32, max_target_positions=32,
    )  # fmt: skip
    ARCH_CONFIG_REGISTRY["fconv"](args)
    model = MODEL_REGISTRY["fconv"].build_model(args, task_of())
    state: dict[str, Any] = {
        "args": None, "cfg": {"model": vars(args), "task": TASK}, "model": model.state_dict(), "extra_state": {},
        "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {}}], "last_optimizer_state": None,
    }  # fmt: skip
    torch.save(state, folder / "fconv.pt")
    return str(folder / "fconv.pt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{folder}/none.pt"], "{folder}/none.pt does not exist"),
        (["{model}", "--compare", "{folder}/none.pt"], "{folder}/none.pt does not exist"),
        (["{model}", "--compare", "{model}"], "--compare {model} is the model itself; give another one"),
        (["{fconv}"], "a FConvModel cannot be linearized; only models of this plugin's families"),
        (
            ["{model}", "--layers", "encoder.4"],
            "--layers encoder.4: there is no layer encoder.4; {model} has encoder.1 to encoder.3 and decoder.1 to",
        ),
        (["{model}", "--layers", ","], "--layers , names no layer; {model} has encoder.1 to encoder.3"),
        (["{model}", "--subset", "test2"], "--subset test2: {data} has no such part for src-tgt"),
        (["{model}", "--subset", "empty"], "--subset empty of {data} is empty"),
        (["{model}", "--train-subset", "train2"], "--train-subset train2: {data} has no such part for src-tgt"),
        (["{model}", "--data", "{folder}/none"], "--data {folder}/none is not a folder"),
        (["{model}", "--data", "{folder}"], "{folder}/dict.src.txt does not exist"),
        (["{model}", "--output", "{folder}"], "--output {folder} exists and is no probe; give another name"),
        (["{model}", "--output", "{model}"], "--output {model} is a file; give the name of a folder"),
        (["{model}", "--metric", "sacrebleu", "--tokenize", "no"], ""),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(tmp_path, DEPTHWISE)
    known = {"folder": str(tmp_path), "data": data, "model": model, "fconv": ""}
    if "{fconv}" in arguments:
        known["fconv"] = fconv(tmp_path)
    given = [argument.format(**known) for argument in arguments]
    assert probe(*quick(given[0], data, tmp_path / "probe"), *given[1:]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"fairseq-depthwise: error: {said.format(**known)}")
    # Nothing was begun, so that the mended command need not be forced.
    assert not (tmp_path / "probe").exists()


def test_a_linearized_model_is_refused(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained(tmp_path, "transformer")
    command = quick(path, data, tmp_path / "probe")
    assert probe(*command, "--layers", "encoder.1") == 0
    written = tmp_path / "probe/checkpoints/encoder.1.pt"
    assert probe(*quick(str(written), data, tmp_path / "again")) == 1
    assert f"{written} holds a linearized model; give the trained model that it was" in capsys.readouterr().err

    # The folder of the compared model is looked at before the work, too.
    other = trained(tmp_path, "transformer", "other.pt", encoder_ffn_embed_dim=28)
    third = trained(tmp_path, "transformer", "third.pt", encoder_ffn_embed_dim=32)
    assert probe(*command, "--layers", "encoder.1", "--compare", other) == 0
    capsys.readouterr()
    assert probe(*command, "--layers", "encoder.1,encoder.2", "--compare", third) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "compared holds a probe with another checkpoint: other.pt there and third.pt here" in line


def test_without_matplotlib(
    tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert probe(*quick("none.pt", data, tmp_path / "probe")) == 1
    assert "probe needs matplotlib; pip install 'fairseq-depthwise[analysis]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--max-tokens-used", "-1"], ["--processes", "0"], ["--probe-state", "cell"]])
def test_bad_values(arguments: list[str], tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        probe(*quick("model.pt", data, tmp_path / "probe"), *arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err
