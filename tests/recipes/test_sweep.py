"""A sweep trains what is missing, goes on after a kill, and its records make the tables."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sweep_training
import torch
from forked_python import ForkedPython
from recipe_runs import RECIPES, SMALL_TEXT, Work, small
from sweep_claims import CLAIMS, verdict
from sweep_figures import STYLES, decoding_speeds
from sweep_numbers import Difference
from sweep_page import tables_of
from sweep_plan import SIZES, SYSTEMS, Record, Run, all_runs
from train_system import Machine, training_options

from fairseq_compat import UserError
from recipes import RECIPES as ALL_RECIPES
from recipes import system_of

RATES = SIZES["multi30k"].rates

sys.path.append(str(RECIPES))
sweep_command: Any = importlib.import_module("sweep")


def _option(options: list[str], name: str) -> str:
    """Return the value of an option that counts: the last."""
    return options[len(options) - options[::-1].index(name)]


def test_every_system_has_the_same_trainings() -> None:
    runs = list(all_runs(("multi30k",), SYSTEMS, (1, 2, 3)))
    assert len(runs) == len(set(runs)) == len(SYSTEMS) * (len(RATES) + 3)
    for system in SYSTEMS:
        assert [run.rate for run in runs if run.system == system] == [*RATES, None, None, None]
    first = [(run.system, run.seed) for run in runs if run.rate is None]
    assert first[: len(SYSTEMS)] == [(system, 1) for system in SYSTEMS]


@pytest.mark.parametrize("recipe", SIZES)
@pytest.mark.parametrize("short", [False, True])
def test_trainings_of_a_recipe_differ_in_the_model_only(recipe: str, short: bool, tmp_path: Path) -> None:
    same = ("--lr", "--max-update", "--max-tokens", "--update-freq", "--warmup-updates", "--adam-betas", "--patience")
    same += ("--dropout", "--attention-dropout", "--activation-dropout", "--label-smoothing", "--save-interval-updates")
    (tmp_path / "train.en-de.en.idx").touch()
    found = set()
    for system in SYSTEMS:
        run = Run(recipe, system, 1, SIZES[recipe].rates[0] if short else None)
        machine = Machine(0, 1)
        options = training_options(
            ALL_RECIPES[recipe], system_of(recipe, system), tmp_path, tmp_path, machine, {"WORK": "", "SEED": "1"}
        )
        options += run.options(RATES[1])
        if system.endswith("_less_dropout"):
            assert float(_option(options, "--dropout")) == pytest.approx(SIZES[recipe].dropout / 3, abs=1e-4)
            options += ["--dropout", str(SIZES[recipe].dropout)]
        found.add(tuple(_option(options, name) for name in same))
        assert _option(options, "--lr") == f"{RATES[1]:g}"
        if "--growth-stages" in options:
            lengths = [stage.partition(":")[2] for stage in _option(options, "--growth-stages").split(",")]
            quarter = int(_option(options, "--max-update")) // 4
            assert lengths == [f"{quarter}u", f"{quarter}u", "u"]
    assert len(found) == 1


def _result(loss: float, score: float | None = None) -> dict[str, Any]:
    result = {"rate": 0.003, "loss": loss, "best_loss": loss, "updates": 40, "cpu_seconds": 120.0, "parameters": 1234}
    result |= {"processor": "a processor", "commit": "abc", "versions": {"torch": "2"}}
    result["curve"] = [[600, loss + 1], [800, loss]]
    if score is not None:
        counts = "eJxjZmBgYGRgZGBmYGJgAgAAYAAR"
        result["metrics"] = {
            name: {"score": score, "signature": "tok:13a", "sentences": counts}
            for name in ALL_RECIPES["multi30k"].metrics
        }
    return result


def test_the_best_rate_is_taken_and_a_failed_one_is_not(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    for rate, result in zip(RATES, (_result(3.5), _result(3.25), {"failed": "NaN"}), strict=True):
        assert record.rate("mute") is None
        record.add(Run("multi30k", "mute", 1, rate), result)
        record.add(Run("multi30k", "sdt", 1, rate), {"failed": "NaN"})
    assert record.rate("mute") == RATES[1]
    assert record.rate("sdt") is None
    assert Record(tmp_path / "record.json", "multi30k").rate("mute") == RATES[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "not a record"),
        ("[]", "not a record"),
        ('{"recipe": "multi30k", "protocol": {}, "runs": {}}', "another protocol"),
        ('{"recipe": "tatoeba_de_en", "protocol": {}, "runs": {}}', "another protocol"),
    ],
)
def test_a_foreign_record_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        Record(path, "multi30k")
    assert path.read_text() == text


def test_trainings_on_other_text_are_refused(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    record.require_text(["29,000 pairs"])
    record.require_text(["29,000 pairs"])
    with pytest.raises(UserError, match="7 pairs"):
        record.require_text(["7 pairs"])


def test_tables_are_those_of_the_record(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    assert "Still to be trained, seed 1, 2, 3: `transformer`," in tables_of(record)["facts"]
    for rate, loss in zip(RATES, (3.5, 3.25, 3.75), strict=True):
        record.add(Run("multi30k", "transformer", 1, rate), _result(loss))
    for seed, score in ((1, 30.0), (2, 31.0), (100, 29.0)):
        record.add(Run("multi30k", "transformer", seed), _result(3.0, score))
    tables = tables_of(record)
    row = "| `transformer` | 1,234 | 0.003 | 3 | 40 ± 0 | 2 ± 0 | 3.000 ± 0.000 | 30.00 ± 1.00 |"
    assert tables["scores"].count(row) == 1
    assert "| `transformer` | 3.500 | 3.250 | 3.750 | 0.003 |" in tables["rates"]
    assert "| fairseq's Transformer, pre-norm | 0.00 M | 3 | 30.00 ± 1.00 |  |  |" in tables["summary"]
    assert "seed 3: `transformer`.\n" in tables["facts"]
    assert "Failed or diverged: none." in tables["facts"]


def test_dropouts_are_compared_at_the_same_rate(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    record.add(Run("multi30k", "transformer_less_dropout", 1, RATES[0]), _result(3.0))
    assert "less_dropout" not in tables_of(record)["dropouts"]
    record.add(Run("multi30k", "transformer", 1, RATES[0]), _result(2.0))
    record.add(Run("multi30k", "transformer", 1, RATES[1]), _result(1.0))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables_of(record)["dropouts"].splitlines()]
    assert rows[0] == ["system", "rate", "dropout", "600", "800"]
    assert rows[2:] == [
        ["`transformer`", "0.0015", "0.3", "3.000", "2.000"],
        ["`transformer_less_dropout`", "0.0015", "0.1", "4.000", "3.000"],
    ]


def test_what_failed_is_not_still_to_be_trained(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    for rate in RATES:
        record.add(Run("multi30k", "mute", 1, rate), {"rate": rate, "failed": "`no`\nmemory -->"})
    record.add(Run("multi30k", "sdt", 3), {"rate": 0.003, "failed": "killed"})
    record.add(Run("multi30k", "deep", 2), _result(3.0, 30.0) | {"loss": math.nan})
    facts = tables_of(record)["facts"]
    missing, failed = facts.partition("Failed or diverged: ")[::2]
    assert "`mute`" not in missing
    assert "seed 1, 2: `sdt`.\n" in missing
    assert "`mute-rate0.0015` (`'no' memory -- >`)" in failed
    assert "`sdt-seed3` (`killed`)" in failed
    assert "`deep-seed2` (`loss nan`)" in failed
    claims = tables_of(record)["claims"].split("\n")
    assert any("| `mute`, `transformer_relative` | - | - | failed: `mute` |" in line for line in claims)
    assert any("| `sdt`, `sdt_no_restart` | - | - | not trained yet |" in line for line in claims)


@pytest.mark.parametrize(
    ("scores", "chances", "expected"),
    [
        ((1.0, 0.5), (0.01, 0.025), "supported"),
        ((1.0, 0.5), (0.01, 0.03), "undecided"),
        ((1.0,), (0.01,), "undecided"),
        ((1.0, -0.5), (0.01, 0.01), "undecided"),
        ((-1.0, -0.5), (0.01, 0.01), "contradicted"),
    ],
)
def test_verdicts(scores: tuple[float, ...], chances: tuple[float, ...], expected: str) -> None:
    assert verdict(Difference(scores, chances, (0.0,) * len(scores)), as_good=False) == expected


@pytest.mark.parametrize(
    ("scores", "chances", "losses", "expected"),
    [
        ((0.1, 0.1), (0.4, 0.4), (0.01, 0.025), "supported"),
        ((0.1, 0.1), (0.4, 0.4), (0.01, 0.03), "undecided"),  # as good here, but not on other sentences
        ((0.3, -0.1), (0.4, 0.4), (0.0, 0.0), "undecided"),  # two seeds that differ bound nothing
        ((0.2, 0.0, 0.1), (0.4, 0.4, 0.4), (0.0, 0.0, 0.0), "supported"),
        ((-0.4, -0.41), (0.01, 0.01), (0.0, 0.0), "contradicted"),
        ((0.5,), (0.01,), (0.0,), "undecided"),
    ],
)
def test_verdicts_of_what_is_as_good(
    scores: tuple[float, ...], chances: tuple[float, ...], losses: tuple[float, ...], expected: str
) -> None:
    assert verdict(Difference(scores, chances, losses), as_good=True) == expected


def test_claims_are_of_systems_that_are_compared() -> None:
    for claim in (claim for claims in CLAIMS.values() for claim in claims):
        assert {claim.system, claim.baseline} <= {*SYSTEMS, ""}
        assert bool(claim.system) == bool(claim.baseline) != bool(claim.elsewhere)


def _decoding(seconds: dict[str, list[float]]) -> dict[str, Any]:
    case = {"part": "decoding", "beam": 4, "sentences": 32, "length": 0}
    return {"meetings": [{"case": case, "rows": {name: {"seconds": times} for name, times in seconds.items()}}]}


def test_figures_show_the_systems_that_have_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path / "sweep_multi30k.json", "multi30k")
    command = ["sweep.py", "--records", str(tmp_path), "--figures", str(tmp_path / "figures")]
    monkeypatch.setattr(sys, "argv", command)
    sweep_command.main()
    assert list((tmp_path / "figures").iterdir()) == []  # there are no scores yet
    for system in ("transformer", "mute"):
        for seed in (1, 2):
            record.add(Run("multi30k", system, seed), _result(3.0 + seed, 30.0 + seed))
    (tmp_path / "protocol_cpu.json").write_text(json.dumps(_decoding({"transformer": [2.0, 1.0], "mute": [1.0, 1.0]})))
    sweep_command.main()
    curves, scores = (tmp_path / "figures" / f"sweep_multi30k_{name}.svg" for name in ("curves", "scores"))
    for figure in (curves, scores):
        text = figure.read_text()
        assert "mute" in text
        assert "depthwise_lstm" not in text
    assert "decoding speed" in scores.read_text()


def test_decoding_speeds_are_ratios_within_rounds(tmp_path: Path) -> None:
    path = tmp_path / "protocol_cpu.json"
    assert decoding_speeds(path) == {}
    path.write_text(json.dumps(_decoding({"transformer": [2.0, 1.0, 3.0], "mute": [1.0, 2.0, 2.0]})))
    assert decoding_speeds(path) == {"transformer": [1, 1, 1], "mute": [2, 0.5, 1.5]}
    several = _decoding({"transformer": [1.0], "mute": [2.0]})
    several["meetings"] += _decoding({"transformer": [1.0], "sdt": [4.0]})["meetings"]
    path.write_text(json.dumps(several))
    assert decoding_speeds(path) == {"transformer": [1], "mute": [0.5], "sdt": [0.25]}


def test_systems_can_be_told_apart_in_figures() -> None:
    styles = list(STYLES.values())
    assert (
        len({(color, line) for color, line, _ in styles})
        == len({(color, mark) for color, _, mark in styles})
        == len(SYSTEMS)
    )


def test_a_folder_of_figures_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "figures"):
        monkeypatch.setattr(sys, "argv", ["sweep.py", "--records", str(tmp_path), "--figures", str(folder)])
        with pytest.raises(UserError, match=f"--figures {folder} "):
            sweep_command.main()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"meetings": []}', '{"meetings": [{"case": {}}]}', "\0", "[" * 100_000,
     json.dumps(_decoding({"transformer": [1.0], "mute": [0.0]})),
     json.dumps(_decoding({"transformer": [math.nan]}))],
)  # fmt: skip
def test_a_record_that_is_none_of_decoding_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "protocol_cpu.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"protocol_cpu\.json is no record"):
        decoding_speeds(path)


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("--status", {"cpu_seconds": None}),
        ("--status", {"cpu_seconds": math.nan}),
        ("--status", {"cpu_seconds": 1e300, "updates": 1}),
        ("--status", {"loss": "x"}),
        ("--tables", {"loss": "x"}),
        ("--tables", {"versions": []}),
        ("--tables", {"metrics": {"sacrebleu": {"score": 1.0, "sentences": "AAAA", "signature": ""}}}),
    ],
)
def test_values_that_no_sweep_writes_are_one_sentence(
    what: str, changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(tmp_path / "sweep_multi30k.json", "multi30k")
    for system in ("mute", "transformer"):
        record.add(Run("multi30k", system, 1), _result(3.0) | changed)
    monkeypatch.setattr(sys, "argv", ["sweep.py", "--recipes", "multi30k", "--records", str(tmp_path), what])
    with pytest.raises(UserError, match=r"sweep_multi30k\.json: a value in it is none"):
        sweep_command.main()


def test_what_outlives_its_sweep_keeps_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that was killed leaves trainings behind: another one would fail in their folders, and empty them."""
    script = tmp_path / "train.sh"
    script.write_text(f"sleep 100 </dev/null >/dev/null 2>&1 &\necho $! >{tmp_path}/pid\n")
    monkeypatch.setattr(sweep_training, "RECIPE_FOLDERS", tmp_path)
    with sweep_command.only_one(tmp_path) as lock:
        training = sweep_training.Training(Run("multi30k", "mute", 1), 0.003, tmp_path, lock)
        assert training.script("train.sh", {}) == 0
    with pytest.raises(UserError, match="is in use by process"), sweep_command.only_one(tmp_path):
        pass
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    end = time.monotonic() + 10
    while True:  # the lock goes with the process
        try:
            with sweep_command.only_one(tmp_path):
                return
        except UserError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_base_width_is_not_begun_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["sweep.py", "--recipes", "multi30k", "mixed_de_en", "--work", str(tmp_path / "work")]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.delenv("CPU", raising=False)
    with pytest.raises(UserError, match="--recipes mixed_de_en needs --gpus 1 or more"):
        sweep_command.main()
    assert not (tmp_path / "work").exists()


def test_more_gpus_than_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is fetched."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(sys, "argv", ["sweep.py", "--gpus", "2", "--work", str(tmp_path / "work")])
    with pytest.raises(UserError, match="--gpus 2: PyTorch finds 1 on this machine"):
        sweep_command.main()
    assert not (tmp_path / "work").exists()


def test_what_failed_is_trained_again_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path / "records" / "sweep_multi30k.json", "multi30k")
    for rate, result in zip(RATES, (_result(3.0), {"failed": "no space"}, _result(3.5)), strict=True):
        record.add(Run("multi30k", "mute", 1, rate), result)
    begun: list[Run] = []

    def train(sweep: Any) -> None:
        begun.append(sweep.next_run())

    monkeypatch.setattr(sweep_command.Sweep, "train", train)
    command = ["sweep.py", "--recipes", "multi30k", "--systems", "mute", "--work", str(tmp_path)]
    for further in ([], ["--retry-failed"]):
        monkeypatch.setattr(sys, "argv", [*command, *further])
        sweep_command.main()
    assert begun == [Run("multi30k", "mute", 1), Run("multi30k", "mute", 1, RATES[1])]


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "3", "[" * 100_000])
def test_a_result_that_no_sweep_wrote_removes_nothing(text: str, tmp_path: Path) -> None:
    run = Run("multi30k", "mute", 1, RATES[0])
    training = sweep_training.Training(run, RATES[0], tmp_path, -1)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_last.pt").touch()
    (tmp_path / "result.json").write_text(text)
    options = argparse.Namespace(work=tmp_path, threads=1, jobs=1, gpus=0)
    with pytest.raises(UserError, match=r"result\.json is not what a sweep wrote"):
        sweep_command.Sweep([run], {}, options, ()).run(training, tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_a_training_that_no_sweep_began_is_left_alone(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", "multi30k")
    run = Run("multi30k", "mute", 1, RATES[0])
    own = tmp_path / "multi30k" / "systems" / run.name / "checkpoints" / "checkpoint_last.pt"
    own.parent.mkdir(parents=True)
    own.touch()
    options = argparse.Namespace(work=tmp_path, threads=1, jobs=1, gpus=0)
    sweep = sweep_command.Sweep([run], {"multi30k": record}, options, ())
    with ThreadPoolExecutor(1) as pool, pytest.raises(UserError, match=r"mute-rate0\.0015 has files of a training"):
        sweep.start(run, pool)
    assert own.exists()


class _Sweep:
    """The command on a small corpus, with small models and few updates."""

    def __init__(self, work: Work, python: Path) -> None:
        self.folder, self.environment = work.folder, {**os.environ, **SMALL_TEXT, **work.environment}
        self.environment |= {"BATCH_TOKENS": "600", "MAX_TOKENS": "600"}
        self.forked = str(python)
        self.command = [str(RECIPES / "sweep.py"), "--recipes", "multi30k", "--systems", "transformer"]
        self.command += ["--seeds", "1", "--work", str(self.folder), "--nice", "0"]
        self.extra = ["--", *small(), "--max-update", "6", "--save-interval-updates", "2", "--log-interval", "1"]

    def start(self, *options: str, python: str = sys.executable) -> subprocess.Popen[str]:
        """The real interpreter by default: a fork is in no group that a signal reaches."""
        return subprocess.Popen(
            [python, *self.command, *options, *self.extra], env={**self.environment, "PYTHON": python},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*options, python=self.forked)
        stdout, stderr = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def runs(self) -> dict[str, Any]:
        path = self.folder / "records" / "sweep_multi30k.json"
        return json.loads(path.read_text())["runs"] if path.exists() else {}


@pytest.fixture
def sweep(new_work: Callable[..., Work], forked_python: ForkedPython) -> _Sweep:
    return _Sweep(new_work("multi30k"), forked_python.python)


@pytest.mark.long
def test_a_sweep_goes_on_where_it_was_killed(sweep: _Sweep, tmp_path: Path) -> None:
    process = sweep.start("--jobs", "2")
    end = time.monotonic() + 200
    while not sweep.runs():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    second = sweep.run()
    assert second.returncode == 1
    assert f"in use by process {process.pid}" in second.stderr
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    before = sweep.runs()
    assert 1 <= len(before) < 4
    assert all(result["cpu_seconds"] > 0 for result in before.values())
    ended = sweep.run("--jobs", "2")
    assert ended.returncode == 0, ended.stderr
    after = sweep.runs()
    assert set(after) == {*(f"transformer-rate{rate:g}" for rate in RATES), "transformer"}
    assert before.items() <= after.items()
    full = after["transformer"]
    assert full["updates"] == 6
    assert full["curve"][-1][0] == 6
    assert full["tokens"] > 0
    assert 1 <= full["averaged"] <= 3
    assert set(full["metrics"]) == set(ALL_RECIPES["multi30k"].metrics)
    systems = sweep.folder / "multi30k" / "systems"
    left = {str(path.relative_to(systems)) for path in systems.rglob("*.pt")}
    assert left == {"transformer/average.pt", "transformer/checkpoints/checkpoint_best.pt"}
    assert "4 of 4 trainings are done" in sweep.run("--status").stdout
    assert "| `transformer` |" in sweep.run("--tables").stdout
    # Nothing of it is needed to score the mean again, or to make a record that was lost.
    scored = Work("multi30k", sweep.folder / "multi30k", {"PYTHON": sweep.forked}).run("evaluate", "transformer").stdout
    assert f"{full['metrics']['sacrebleu']['score']:.2f}" in scored
    times = {path: path.stat().st_mtime_ns for path in systems.rglob("train.log")}
    (sweep.folder / "records" / "sweep_multi30k.json").unlink()
    assert sweep.run("--jobs", "2").returncode == 0
    assert sweep.runs() == after
    assert {path: path.stat().st_mtime_ns for path in systems.rglob("train.log")} == times


def test_a_training_that_fails_is_in_the_record(sweep: _Sweep) -> None:
    sweep.extra += ["--no-such-option"]
    ended = sweep.run()
    assert ended.returncode == 0, ended.stderr
    assert all("--no-such-option" in result["failed"] for result in sweep.runs().values())
    assert len(sweep.runs()) == len(RATES)
