"""Probing a model: which sentences, what is kept, going on after being stopped, several processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import KINDS, SIZES, checkpoint_of, data_in

from fairseq_compat import UserError, checkpoints
from fairseq_compat.outputs import begin_folder
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.probe.fit import choose_batches, collect_moments
from fairseq_depthwise.analysis.probe.probe import ProbedModel, prepare, probe
from fairseq_depthwise.analysis.probe.workers import ProbeOptions, ProbeWorker, translate_subset
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

DEPTHWISE = "depthwise_lstm_transformer"
Key = tuple[str, str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return data_in(tmp_path_factory.mktemp("probe") / "data-bin", long=["w1 " * 40, "w1 w2", "w3"])


def trained(folder: Path, kind: str, name: str = "model.pt", **options: Any) -> str:
    """A checkpoint whose translations end after a few steps: untrained models know no end."""
    return checkpoint_of(folder, kind, name, **{"max_target_positions": 12, **options})


def run(path: str, folder: Path, options: ProbeOptions, *, force: bool = False) -> ProbedModel:
    ready = prepare(path, options)
    return probe(ready, ready.open(str(folder), force=force))


def numbers_of(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The rows that are translated, as they are."""
    keys: list[Key] = []
    original = ProbeWorker.translate

    def translate(self: ProbeWorker, layer: str, state: str, *rest: Any) -> list[str]:
        keys.append((layer, state))
        return original(self, layer, state, *rest)

    monkeypatch.setattr(ProbeWorker, "translate", translate)
    return keys


# --- which sentences -------------------------------------------------------------------------------------------------


def test_sentences_are_chosen_by_a_budget_always_the_same(tmp_path: Path, data: str) -> None:
    path = trained(tmp_path, DEPTHWISE)
    sizes: Any = load_model(path, data).sentences("train").tgt_sizes

    def choose(tokens: int) -> list[list[int]]:
        return choose_batches(load_model(path, data), "train", max_tokens_used=tokens, max_tokens=20)

    few, more, whole = choose(60), choose(150), choose(0)
    assert choose(60) == few
    assert sorted(numbers_of(whole)) == list(range(SIZES["train"]))
    for budget, batches in ((60, few), (150, more)):
        numbers = numbers_of(batches)
        assert len(set(numbers)) == len(numbers)
        assert budget - 7 < sum(sizes[number] for number in numbers) <= budget
        assert all(len(batch) * max(sizes[number] for number in batch) <= 20 for batch in batches)
    assert set(numbers_of(few)) < set(numbers_of(more))
    assert set(numbers_of(few)) != set(range(len(numbers_of(few))))  # not the first ones
    assert len(numbers_of(choose(1))) == 1
    assert choose(10**9) == whole


def test_sentences_that_are_too_long(tmp_path: Path, data: str) -> None:
    loaded = load_model(trained(tmp_path, DEPTHWISE, max_source_positions=20, max_target_positions=20), data)
    assert sorted(numbers_of(choose_batches(loaded, "long", max_tokens_used=0, max_tokens=10))) == [1, 2]
    short = load_model(trained(tmp_path, DEPTHWISE, max_source_positions=1, max_target_positions=1), data)
    with pytest.raises(UserError, match="no sentence is left"):
        choose_batches(short, "long", max_tokens_used=0, max_tokens=10)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_each_sentence_alone(kind: str, tmp_path: Path, data: str) -> None:
    loaded = load_model(trained(tmp_path, kind), data)
    model = LinearizedTransformer(loaded.model, ["encoder.2", "decoder.1"])
    dataset: Any = loaded.sentences("test")
    cpu = torch.device("cpu")
    whole = collect_moments(model, dataset, [range(8)], device=cpu)
    alone = collect_moments(model, dataset, [[number] for number in range(8)], device=cpu)
    assert whole["decoder.1"].count == sum(dataset.tgt_sizes)
    for name, one in whole.items():
        for part in ("mean", "products", "squares"):
            torch.testing.assert_close(getattr(one, part), getattr(alone[name], part), rtol=1e-4, atol=1e-4)


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DEPTHWISE, "transformer"])
def test_checkpoints_translate_as_the_rows_did(kind: str, tmp_path: Path, data: str) -> None:
    path = trained(tmp_path, kind)
    before = Path(path).read_bytes()
    found = run(path, tmp_path / "probe", ProbeOptions(data, layers="encoder.1,decoder.2", beam=2))
    assert Path(path).read_bytes() == before
    states = ["pair", "output"] if kind == DEPTHWISE else [""]
    assert [(row.layer, row.state) for row in found.rows] == [
        ("none", ""), *((layer, state) for state in states for layer in ("encoder.1", "decoder.2"))
    ]  # fmt: skip
    files = sorted((tmp_path / "probe/checkpoints").iterdir())
    assert len(files) == len(found.rows) - 1
    texts: set[str] = set()
    for file in files:
        loaded = load_model(str(file), data)
        text = (tmp_path / "probe/hypotheses" / f"{file.stem}.txt").read_text()
        translations = translate_subset(loaded, loaded.model, ProbeOptions(data, beam=2), torch.device("cpu"))
        assert translations == text.splitlines()
        texts.add(text)
    assert len(texts) > 1


def test_finished_rows_are_not_done_again(tmp_path: Path, data: str, translated: list[Key]) -> None:
    path, options = trained(tmp_path, DEPTHWISE), ProbeOptions(data, layers="encoder.1", states=("pair",), beam=1)
    folder = tmp_path / "probe"
    first = run(path, folder, options)
    assert translated == [("none", ""), ("encoder.1", "pair")]
    maps = checkpoints.load(folder / "maps.pt")
    translated.clear()
    assert run(path, folder, options) == first
    assert translated == []

    more = run(path, folder, replace(options, layers="encoder.1,decoder.3", states=("pair", "output")))
    assert translated == [("decoder.3", "pair"), ("encoder.1", "output"), ("decoder.3", "output")]
    assert more.rows[:2] == first.rows
    again = checkpoints.load(folder / "maps.pt")
    assert torch.equal(again["encoder.1 pair"]["weight"], maps["encoder.1 pair"]["weight"])
    assert len(list((folder / "checkpoints").iterdir())) == 4


def test_stopped_between_rows(
    tmp_path: Path, data: str, translated: list[Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, options = trained(tmp_path, "transformer"), ProbeOptions(data, layers="encoder.1,encoder.2", beam=1)
    expected = run(path, tmp_path / "whole", options)
    translated.clear()
    counted = ProbeWorker.translate

    def stop(self: ProbeWorker, layer: str, *rest: Any) -> list[str]:
        if layer == "encoder.1":
            raise KeyboardInterrupt
        return counted(self, layer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(ProbeWorker, "translate", stop)
        with pytest.raises(KeyboardInterrupt):
            run(path, tmp_path / "stopped", options)
    assert translated == [("none", "")]
    assert run(path, tmp_path / "stopped", options) == expected
    assert translated == [("none", ""), ("encoder.1", ""), ("encoder.2", "")]
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
             for folder in (tmp_path / "whole", tmp_path / "stopped")]  # fmt: skip
    assert names[0] == names[1]


@pytest.mark.parametrize("left", [[], [".made_by.json.0123456789abcdef.fairseq-unfinished"]])
def test_killed_before_anything_was_written(left: list[str], tmp_path: Path, data: str) -> None:
    folder = tmp_path / "probe"
    folder.mkdir()
    for name in left:
        (folder / name).write_text("{")
    prepare(trained(tmp_path, DEPTHWISE), ProbeOptions(data)).open(str(folder))
    assert (folder / "probe.json").is_file()
    (folder / "checkpoints").rmdir()  # it was killed before this one
    prepare(trained(tmp_path, DEPTHWISE), ProbeOptions(data)).open(str(folder))
    assert (folder / "checkpoints").is_dir()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_tokens_used": 50}, "another max tokens used: 1000000 there and 50 here"),
        ({"beam": 2}, "another beam: 4 there and 2 here"),
        ({"length_penalty": 1.0}, "another length penalty: 0.6 there and 1.0 here"),
        ({"metric": "chrf"}, "another metric: tokenized there and chrf here"),
        ({"subset": "valid"}, "another subset: test there and valid here"),
        ({"train_subset": "valid"}, "another train subset: train there and valid here"),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], said: str, tmp_path: Path, data: str) -> None:
    path, folder, options = trained(tmp_path, DEPTHWISE), tmp_path / "probe", ProbeOptions(data)
    prepare(path, options).open(str(folder))
    with pytest.raises(UserError) as error:
        prepare(path, replace(options, **changes)).open(str(folder))
    assert said in str(error.value)
    assert "give another folder, or --force to start again" in str(error.value)
    # What changes no number is none of them.
    other = replace(options, layers="encoder.1", states=("pair",), max_tokens=5, processes=2, checkpoints=False)
    prepare(path, other).open(str(folder))


def test_another_checkpoint_of_the_same_name_and_force(tmp_path: Path, data: str) -> None:
    path, folder = trained(tmp_path, "transformer"), tmp_path / "probe"
    options = ProbeOptions(data, layers="encoder.1", beam=1)
    run(path, folder, options)
    for name in ("mine.txt", "hypotheses/mine.txt", "checkpoints/mine.pt"):
        (folder / name).write_text("kept")
    trained(tmp_path, "transformer", encoder_ffn_embed_dim=28)
    with pytest.raises(UserError, match="another checksum"):
        run(path, folder, options)
    ready = prepare(path, options)
    record = ready.open(str(folder), force=True)
    assert record.rows == []
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()) == [
        "checkpoints/mine.pt", "hypotheses/mine.txt", "made_by.json", "mine.txt", "probe.json",
    ]  # fmt: skip
    assert len(probe(ready, record).rows) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": 5, "rows": []}', '{"settings": {}, "rows": [1]}'])
def test_damaged_record(text: str, tmp_path: Path, data: str) -> None:
    ready = prepare(trained(tmp_path, DEPTHWISE), ProbeOptions(data))
    folder = Path(begin_folder("--output", str(tmp_path / "probe"), "probe"))
    (folder / "probe.json").write_text(text)
    with pytest.raises(UserError, match="is no record of a probe, or is damaged; give another --output, or --force"):
        ready.open(str(folder))
    assert ready.open(str(folder), force=True).rows == []
    assert json.loads((folder / "probe.json").read_text())["rows"] == []


def test_a_model_whose_layer_overflows(tmp_path: Path, data: str) -> None:
    path = trained(tmp_path, DEPTHWISE)
    state = checkpoints.load_checkpoint(path)
    next(value for name, value in state["model"].items() if name.startswith("encoder.layers.1."))[:] = 3e38
    torch.save(state, path)
    with pytest.raises(UserError, match=r"model.pt, encoder.2: a layer's input or output is not finite; has its"):
        run(path, tmp_path / "probe", ProbeOptions(data, layers="encoder.2"))


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path, data: str) -> None:
    path = trained(tmp_path, DEPTHWISE)
    options = ProbeOptions(data, layers="encoder.1,decoder.3", max_tokens=60, beam=1)
    one = run(path, tmp_path / "one", options)
    two = run(path, tmp_path / "two", replace(options, processes=2))
    maps = [checkpoints.load(tmp_path / folder / "maps.pt") for folder in ("one", "two")]
    assert list(maps[0]) == list(maps[1])
    for key, fit in maps[0].items():
        torch.testing.assert_close(fit["weight"], maps[1][key]["weight"], rtol=0, atol=1e-3)
        assert fit["positions"] == maps[1][key]["positions"]
    for first, second in zip(one.rows, two.rows, strict=True):
        assert (first.layer, first.state, first.positions) == (second.layer, second.state, second.positions)
        assert first.score == pytest.approx(second.score)
        assert first.error == (None if second.error is None else pytest.approx(second.error, rel=1e-4))


@pytest.mark.slow
def test_processes_end_with_their_parent(tmp_path: Path, data: str) -> None:
    """Nobody would end them if it is killed."""
    program = (
        "import multiprocessing, sys, time\n"
        "from fairseq_depthwise.analysis.probe.workers import ProbeOptions, load_trained, running_workers\n"
        "if __name__ == '__main__':\n"
        "    options = ProbeOptions(sys.argv[2], processes=2)\n"
        "    with running_workers(load_trained(*sys.argv[1:]), ['encoder.1'], options) as run:\n"
        "        list(run('collect', [([[0]],)]))\n"
        "        print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        "        time.sleep(600)\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py"), trained(tmp_path, DEPTHWISE), data]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(number) for number in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(children) == 1
    for _ in range(100):
        if not any(_runs(child) for child in children):
            return
        time.sleep(0.1)
    pytest.fail(f"processes {children} are still there")


def _runs(process: int) -> bool:
    """Whether it is there and no zombie that nobody has asked after."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False
