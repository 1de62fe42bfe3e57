"""``fairseq-depthwise probe``: table, figure and checkpoints, going on after being stopped, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_checkpoints import checkpoint_of

from fairseq_depthwise import cli
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.probe import probe

DEPTHWISE = "depthwise_lstm_transformer"


def trained(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint whose translations end after a few steps: untrained models know no end."""
    return checkpoint_of(folder, kind, name, **{"max_target_positions": 12, **options})


def quick(path: str, data: str, output: Path) -> list[object]:
    """chrF, because the BLEU of untrained models is 0."""
    return ["probe", path, "--data", data, "--output", output, "--beam", 1, "--metric", "chrf", "--cpu"]


@pytest.mark.parametrize("words", ["--lenpen nan", "--lenpen 1e400", "--beam 0", "--max-tokens-used -1"])
def test_numbers_that_would_give_other_translations(words: str, tmp_path: Path) -> None:
    """Without a word; -1 tokens were one sentence."""
    with pytest.raises(SystemExit, match="2"):
        cli.main([*map(str, quick("model.pt", "data", tmp_path / "probe")), *words.split()])
    assert not any(tmp_path.iterdir())


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Something for each row that is translated."""
    calls: list[int] = []
    original = probe.Probe.translate_subset

    def translate(*arguments: Any) -> list[str]:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(probe.Probe, "translate_subset", translate)
    return calls


def test_forms_agree(tmp_path: Path, data: str, printed: Callable[..., str], document: Callable[..., Any]) -> None:
    path, folder = trained(tmp_path, DEPTHWISE), tmp_path / "probe"
    command = [*quick(path, data, folder), "--layers", "encoder.1,decoder.3"]
    found = document(*command)
    text = printed(*command)
    assert (folder / "table.txt").read_text() == text
    assert json.loads((folder / "table.json").read_text()) == found

    (model,) = found["models"]
    assert (model["checkpoint"], model["architecture"], model["metric"]) == (path, DEPTHWISE, "chrF2")
    rows = model["rows"]
    assert [(row["layer"], row["state"]) for row in rows] == [
        ("none", ""), ("encoder.1", "pair"), ("decoder.3", "pair"), ("encoder.1", "output"), ("decoder.3", "output"),
    ]  # fmt: skip
    assert (rows[0]["change"], rows[0]["error"], model["score"]) == (0, None, rows[0]["score"])
    (encoder,) = (row for row in rows if (row["layer"], row["state"]) == ("encoder.1", "pair"))
    shown = [f"{encoder['score']:.2f}", f"{encoder['change']:+.2f}", f"{100 * encoder['unexplained']:.2f}"]
    assert ["1", *shown, "-", "-", "-"] in [line.split() for line in text.splitlines()]
    for row in rows:
        assert row["change"] == pytest.approx(100 * (row["score"] / model["score"] - 1))


def test_stopped_between_rows(
    tmp_path: Path, data: str, document: Callable[..., Any], translated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, layers = trained(tmp_path, "transformer"), ["--layers", "encoder.1,encoder.2"]
    expected = document(*quick(path, data, tmp_path / "whole"), *layers)

    original = probe.Probe.translate_subset

    def stop(*arguments: Any) -> list[str]:
        if (tmp_path / "stopped/hypotheses/none.txt").exists():
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(probe.Probe, "translate_subset", stop)
        assert cli.main(list(map(str, [*quick(path, data, tmp_path / "stopped"), *layers]))) == 130
    translated.clear()
    assert document(*quick(path, data, tmp_path / "stopped"), *layers) == expected
    assert len(translated) == 2
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
             for folder in (tmp_path / "whole", tmp_path / "stopped")]  # fmt: skip
    assert names[0] == names[1]


def test_two_models_of_one_name(tmp_path: Path, data: str, document: Callable[..., Any]) -> None:
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


def test_other_settings_are_refused_and_force(
    tmp_path: Path, data: str, document: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    path, folder = trained(tmp_path, "transformer"), tmp_path / "probe"
    command = [*quick(path, data, folder), "--layers"]
    document(*command, "encoder.1,encoder.2")
    names = ("hypotheses/mine.txt", "hypotheses/old-encoder.1.txt", "hypotheses/encoder.1.md", "notes/encoder.1.txt")
    mine = [folder / name for name in (*names, "checkpoints/my_decoder.2-copy.pt")]
    (folder / "notes").mkdir()
    for path_of_mine in mine:
        path_of_mine.write_text("kept")
    assert "another beam" in refusal(*command, "encoder.1", "--beam", 50)
    linearized = folder / "checkpoints/encoder.1.pt"
    assert f"{linearized} holds a linearized model" in refusal(*quick(str(linearized), data, tmp_path / "again"))

    trained(tmp_path, "transformer", encoder_ffn_embed_dim=28)
    assert "another checksum" in refusal(*command, "encoder.1")
    (model,) = document(*command, "encoder.1", "--force")["models"]
    assert len(model["rows"]) == 2
    results = {
        folder / name for name in ("checkpoints/encoder.1.pt", "hypotheses/encoder.1.txt", "hypotheses/none.txt")
    }
    assert {*folder.glob("*/*")} == {*mine, *results}
    assert load_model(str(linearized), data).model.encoder.layers[0].intact.fc1.out_features == 28
    (folder / "probe.json").unlink()
    assert "maps.pt exists and was not written by this probe" in refusal(*command, "encoder.1")
    os.mkfifo(folder / "probe.json")
    assert "pipe" in refusal(*command, "encoder.1")


def test_other_data_in_the_same_folder_are_refused(
    tmp_path: Path, data: str, document: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    path, ours = trained(tmp_path, "transformer"), shutil.copytree(data, tmp_path / "data")
    command = [*quick(path, str(ours), tmp_path / "probe"), "--layers", "encoder.1", "--no-checkpoints"]
    document(*command)
    moved = ours.rename(tmp_path / "moved")
    document(*quick(path, str(moved), tmp_path / "probe"), *command[-3:])
    for file in moved.glob("test.*"):
        shutil.copyfile(moved / file.name.replace("test.", "train.", 1), file)
    assert "another data" in refusal(*quick(path, str(moved), tmp_path / "probe"), *command[-3:])


def test_links_are_not_followed(tmp_path: Path, data: str, refusal: Callable[..., str]) -> None:
    path, folder = trained(tmp_path, "transformer"), tmp_path / "probe"
    (tmp_path / "mine").mkdir()
    folder.mkdir()
    (folder / "checkpoints").symlink_to(tmp_path / "mine")
    (folder / "made_by.json").write_text('{"program": "fairseq-depthwise", "kind": "probe"}')
    assert "checkpoints is a link" in refusal(*quick(path, data, folder))
    assert not any((tmp_path / "mine").iterdir())
