"""``fairseq-depthwise probe``: three forms of one table, a figure, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY
from probe_checkpoints import TASK, checkpoint_of
from tiny_models import task_of

from fairseq_depthwise import cli
from fairseq_depthwise.analysis.probe.probe import ProbedModel
from fairseq_depthwise.analysis.probe.record import ProbeRow
from fairseq_depthwise.analysis.probe.report import as_text, write_probe

DEPTHWISE = "depthwise_lstm_transformer"


def trained(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint whose translations end after a few steps: untrained models know no end."""
    return checkpoint_of(folder, kind, name, **{"max_target_positions": 12, **options})


def quick(path: str, data: str, output: Path) -> list[object]:
    """chrF, because the BLEU of untrained models is 0."""
    return ["probe", path, "--data", data, "--output", output, "--beam", 1, "--metric", "chrf", "--cpu"]


def test_forms_agree(tmp_path: Path, data: str, printed: Callable[..., str], document: Callable[..., Any]) -> None:
    path, folder = trained(tmp_path, DEPTHWISE), tmp_path / "probe"
    command = [*quick(path, data, folder), "--layers", "encoder.1,decoder.3"]
    found = document(*command)
    lines = list(csv.DictReader(io.StringIO(printed(*command, "--csv"))))
    text = printed(*command)
    assert (folder / "table.txt").read_text() == text
    assert json.loads((folder / "table.json").read_text()) == found
    assert list(csv.DictReader((folder / "table.csv").read_text().splitlines())) == lines

    (model,) = found["models"]
    assert (model["checkpoint"], model["architecture"], model["metric"]) == (path, DEPTHWISE, "chrF2")
    rows = model["rows"]
    assert [(row["layer"], row["state"]) for row in rows] == [
        ("none", ""), ("encoder.1", "pair"), ("decoder.3", "pair"), ("encoder.1", "output"), ("decoder.3", "output"),
    ]  # fmt: skip
    assert (rows[0]["change"], rows[0]["error"], model["score"]) == (0, None, rows[0]["score"])
    for row, line in zip(rows, lines, strict=True):
        assert {name: "" if value is None else str(value) for name, value in row.items()} | {"checkpoint": path} == line
        assert row["change"] == pytest.approx(100 * (row["score"] / model["score"] - 1))
    for part, state in zip(text.split("\n\n"), ("pair", "output"), strict=True):
        none, first, third = (line.split() for line in part.strip().splitlines()[-3:])
        score = f"{model['score']:.2f}"
        assert none == ["none", score, "0.00", "-", score, "0.00", "-"]
        encoder, decoder = (
            [f"{row['score']:.2f}", f"{row['change']:+.2f}", f"{100 * row['unexplained']:.2f}"]
            for row in rows
            if row["state"] == state
        )
        assert first == ["1", *encoder, "-", "-", "-"]
        assert third == ["3", "-", "-", "-", *decoder]


def test_two_models_of_one_name(
    tmp_path: Path, data: str, document: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    path, other = trained(tmp_path / "a", DEPTHWISE), trained(tmp_path / "b", "transformer")
    command = [*quick(path, data, tmp_path / "probe"), "--layers", "encoder.2", "--probe-state", "output"]
    models = document(*command, "--compare", other, "--no-checkpoints")["models"]
    assert [(model["checkpoint"], [(row["layer"], row["state"]) for row in model["rows"]]) for model in models] == [
        (path, [("none", ""), ("encoder.2", "output")]),
        (other, [("none", ""), ("encoder.2", "")]),
    ]
    assert {one.name for one in (tmp_path / "probe").rglob("*.pt")} == {"maps.pt"}
    text = (tmp_path / "probe/figure.svg").read_text()
    for label in ("a/model.pt, Out linear, Cell passed on", "b/model.pt", "change of chrF2 (%)"):
        assert f">{label}<" in text, label
    assert [(tmp_path / f"probe/figure.{form}").read_bytes()[:4] for form in ("pdf", "png")] == [b"%PDF", b"\x89PNG"]
    assert not list(tmp_path.rglob("*.fairseq-unfinished"))

    # Checkpoints can be asked for later; what is there is not done again.
    assert cli.main(list(map(str, [*command, "--compare", other]))) == 0
    messages = capsys.readouterr().err
    assert "fitting" not in messages
    assert "chrF2 " not in messages
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
    ("words", "named"),
    [
        ("{folder}/none.pt", "{folder}/none.pt"),
        ("{model} --compare {folder}/none.pt", "{folder}/none.pt"),
        ("{model} --compare {model}", "--compare {model}"),
        ("{fconv}", "a FConvModel"),
        ("{model} --layers encoder.4", "--layers encoder.4"),
        ("{model} --layers ,", "--layers ,"),
        ("{model} --subset test2", "--subset test2: {data}"),
        ("{model} --subset empty", "--subset empty of {data}"),
        ("{model} --train-subset train2", "--train-subset train2: {data}"),
        ("{model} --data {folder}/none", "--data {folder}/none"),
        ("{model} --data {folder}", "{folder}/dict.src.txt"),
        ("{model} --output {folder}", "--output {folder} exists"),
        ("{model} --output {model}", "--output {model} is a file"),
        ("{model} --metric sacrebleu --tokenize no", "--tokenize no"),
    ],
)
def test_refused_before_anything_is_begun(
    words: str, named: str, tmp_path: Path, data: str, refusal: Callable[..., str]
) -> None:
    known = {"folder": tmp_path, "data": data, "model": trained(tmp_path, DEPTHWISE)}
    known["fconv"] = fconv(tmp_path) if "{fconv}" in words else ""
    path, *options = words.format(**known).split()
    assert refusal(*quick(path, data, tmp_path / "probe"), *options).startswith(named.format(**known))
    assert not (tmp_path / "probe").exists()


def test_a_linearized_model_and_another_comparison_are_refused(
    tmp_path: Path, data: str, printed: Callable[..., str], refusal: Callable[..., str]
) -> None:
    path = trained(tmp_path, "transformer")
    other = trained(tmp_path, "transformer", "other.pt", encoder_ffn_embed_dim=28)
    third = trained(tmp_path, "transformer", "third.pt", encoder_ffn_embed_dim=32)
    command = quick(path, data, tmp_path / "probe")
    printed(*command, "--layers", "encoder.1", "--compare", other)
    written = tmp_path / "probe/checkpoints/encoder.1.pt"
    assert f"{written} holds a linearized model" in refusal(*quick(str(written), data, tmp_path / "again"))
    # The folder of the compared model is looked at before the work, too.
    sentence = refusal(*command, "--layers", "encoder.1,encoder.2", "--compare", third)
    assert "other.pt" in sentence
    assert "third.pt" in sentence


def test_without_matplotlib(
    tmp_path: Path, data: str, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "matplotlib" in refusal(*quick("none.pt", data, tmp_path / "probe"))


@pytest.mark.parametrize("option", ["--max-tokens-used -1", "--processes 0", "--probe-state cell"])
def test_wrong_values(option: str, tmp_path: Path, assert_usage_error: Callable[..., None]) -> None:
    name, value = option.split()
    assert_usage_error(*quick("model.pt", "data", tmp_path / "probe"), name, value, option=name)
