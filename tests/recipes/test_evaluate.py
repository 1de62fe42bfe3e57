"""What evaluate.sh prints besides scores: hours of training, means over test sets, and how fast a system decodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import decoding_speed
import pytest
import torch
from corpus_mirror import NIST_TESTS
from mean_scores import mean_scores, means_table, published_mean
from recipe_runs import Work, lines, small
from training_times import times_table, training_times

from recipes import system_of

pytestmark = pytest.mark.xdist_group("recipes")

TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2018_flickr")
MODEL = [*small(), "--encoder-ffn-embed-dim=32", "--decoder-ffn-embed-dim=32", "--encoder-block-size=1"]


@pytest.fixture(scope="module")
def grown(prepared: Callable[[str], Work]) -> Work:
    """A model that grows, stopped within an epoch and resumed, and its baseline, which is as deep from the start."""
    work = prepared("multi30k")
    saving = "--save-interval-updates=5"
    work.train("deep_blocks", *MODEL, saving, "--max-update=24")
    for last in (3, 14):
        work.train("sdt", *MODEL, saving, f"--growth-stages=1:10u,2:{last}u")
    work.run("evaluate", "deep_blocks")
    return work


@pytest.fixture(scope="module")
def printed(grown: Work) -> str:
    """What evaluate.sh prints of it."""
    return grown.run("evaluate", "sdt").stdout


def hours_in(log: Path) -> float:
    """Return the hours in training steps: the last line of each epoch counts all of that epoch."""
    seconds = {}
    for line in lines(log):
        if '"train_train_wall"' in line:
            values = json.loads(line)
            seconds[values["epoch"]] = float(values["train_train_wall"])
    return sum(seconds.values()) / 3600


@pytest.mark.long
def test_hours_and_the_share_saved(grown: Work, printed: str) -> None:
    systems = grown.folder / "systems"
    log = systems / "sdt" / "train.log"
    assert log.read_text().count("done training") == 2
    assert sum('"epoch": 2, "train_loss"' in line for line in lines(log)) == 2, "it was stopped within an epoch"
    hours, deep = hours_in(log), hours_in(systems / "deep_blocks" / "train.log")
    for test in TESTS:
        (training,) = json.loads((systems / f"sdt.{test}.scores.json").read_text())["training"]
        assert training["hours"] == pytest.approx(hours, rel=0.001)
        assert training["baseline"]["system"] == "deep_blocks"
        assert training["baseline"]["hours"] == pytest.approx(deep, rel=0.001)
        assert training["saved"] == pytest.approx(1 - hours / deep, abs=0.001)
        assert (training["device"], training["processes"], training["precision"]) == ("CPU", "1", "fp32")
        assert training["updates"] == training["baseline"]["updates"] == 24
    (row,) = [line.split() for line in printed.split("\n") if "CPU, fp32" in line]
    assert float(row[1]) == pytest.approx(hours, rel=0.01)
    share, baseline = row[6:8]
    assert baseline == "deep_blocks"
    assert float(share.removesuffix("%")) == pytest.approx(100 * (1 - hours / deep), abs=0.1)


@pytest.mark.long
def test_reports_have_the_size_of_the_grown_model(grown: Work) -> None:
    logs = [grown.folder / "systems" / system / "train.log" for system in ("deep_blocks", "sdt")]
    command = [sys.executable, "-m", "fairseq_depthwise", "report", *map(str, logs), "--json"]
    deep, sdt = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["runs"]
    assert sdt["summary"]["parameters"] == deep["summary"]["parameters"]
    assert sdt["summary"]["hours"] == pytest.approx(hours_in(logs[1]), rel=0.001)


@pytest.mark.long
def test_means_over_test_sets(grown: Work, printed: str) -> None:
    systems = grown.folder / "systems"
    documents = [json.loads((systems / f"sdt.{test}.scores.json").read_text()) for test in TESTS]
    assert all(document["over_tests"] == documents[0]["over_tests"] for document in documents)
    for metric, (mean,) in documents[0]["over_tests"].items():
        scored = [document["metrics"][metric][0] for document in documents]
        assert mean["mean"] == pytest.approx(fmean(run["score"] for run in scored))
        difference = fmean(run["score"] - run["baseline_score"] for run in scored)
        assert mean["differences"]["deep_blocks"] == pytest.approx(difference)
        rows = [line.split() for line in printed.split("\n")]
        assert [metric, "1", f"{mean['mean']:.2f}", f"{mean['differences']['deep_blocks']:+.2f}", "deep_blocks"] in rows


@pytest.mark.long
def test_decoding_speed(grown: Work) -> None:
    """The system and its baseline, with the batch and the precision that are asked for."""
    printed = grown.run("evaluate", "sdt", "--speed", ROUNDS=3, BATCH_SENTENCES=5, PRECISION="bf16", GPUS=0).stdout
    document = json.loads((grown.folder / "systems" / f"sdt.{TESTS[0]}.speed.json").read_text())
    assert document["batch_sentences"] == 5
    assert document["max_tokens"] is None
    assert (document["precision"], document["beam"], document["length_penalty"]) == ("bf16", 5, 1.0)
    sentences, tokens = document["sentences_per_second"], document["tokens_per_second"]
    assert list(sentences) == list(tokens) == ["sdt", "deep_blocks"]
    for name, speeds in sentences.items():
        assert len(speeds) == 3
        assert min(speeds) > 0
        lengths = [token / sentence for token, sentence in zip(tokens[name], speeds, strict=True)]
        assert max(lengths) == pytest.approx(min(lengths)), "the same translations in each round"
        assert f"{sorted(speeds)[1]:.2f}" in printed
    ratios = [first / second for first, second in zip(*sentences.values(), strict=True)]
    (row,) = [line.split() for line in printed.split("\n") if line.split()[:1] == ["ratio"]]
    assert row[1] == f"{sorted(ratios)[1]:.3f}"
    for word in ("bf16", "beam 5", "5 sentences", "thread"):
        assert word in printed


@pytest.mark.parametrize(
    ("environment", "word"),
    [({"PRECISION": "fp16", "GPUS": "0"}, "PRECISION=fp16"), ({"BATCH_SENTENCES": "none"}, "BATCH_SENTENCES=none")],
)
@pytest.mark.long
def test_speeds_that_cannot_be_measured(grown: Work, environment: dict[str, str], word: str) -> None:
    assert word in grown.run("evaluate", "sdt", "--speed", status=1, **environment).stderr


def test_default_precision_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the papers, as far as they say."""
    for name in ("PRECISION", "MAX_TOKENS", "BATCH_SENTENCES", "GPUS", "ROUNDS"):
        monkeypatch.delenv(name, raising=False)
    for gpu, precision in ((True, "fp16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        units = decoding_speed.decoding_settings(system_of("nist_zh_en", "mute"))
        lstm = decoding_speed.decoding_settings(system_of("wmt14_en_de", "depthwise_lstm_6l"))
        assert units.precision == lstm.precision == precision
        assert (units.batch_sentences, units.max_tokens) == (30, None)
        assert (lstm.batch_sentences, lstm.max_tokens) == (None, 4096)
    monkeypatch.setenv("MAX_TOKENS", "1000")
    units = decoding_speed.decoding_settings(system_of("nist_zh_en", "mute"))
    assert (units.batch_sentences, units.max_tokens) == (None, 1000)


@pytest.mark.parametrize("recipe", decoding_speed.PUBLISHED)
def test_published_speeds_are_of_systems(recipe: str) -> None:
    for name in decoding_speed.PUBLISHED[recipe]:
        assert system_of(recipe, name).paper


@pytest.mark.parametrize(
    ("system", "mean", "difference"),
    [
        ("mute_relative", 44.83, 0.53),
        ("mute_big", 45.17, 0.86),
        ("mute", 45.43, 1.12),
        ("mute_biased", 45.74, 1.44),
        ("mute_sequential", 45.82, 1.52),
    ],
)
def test_published_means_are_those_of_tables_1_and_5(system: str, mean: float, difference: float) -> None:
    """Over all five sets, the validation set among them; Table 5 has no mean of the second and the fourth system."""
    published, base = (system_of("nist_zh_en", name).published["nist_zh_en"] for name in (system, "mute_baseline"))
    computed = published_mean(published, "tokenized-lc", NIST_TESTS)
    baseline = published_mean(base, "tokenized-lc", NIST_TESTS)
    assert computed is not None
    assert baseline is not None
    assert round(computed, 2) == mean
    assert round(computed - baseline, 2) == difference
    assert published_mean(published, "sacrebleu", NIST_TESTS) is None


def test_means_of_seeds() -> None:
    """A difference is from a baseline that has been scored on all sets; its mean, over seeds that all have it."""

    def run(seed: str, score: float, **baselines: float) -> dict[str, Any]:
        return {"seed": seed, "score": score, "baseline_scores": baselines}

    documents = {
        "mt02": {"metrics": {"chrf": [run("1", 10, near=8, far=6), run("2", 12, near=9)]}},
        "mt03": {"metrics": {"chrf": [run("1", 20, near=19), run("2", 24, near=25)]}},
    }
    means = mean_scores(documents)
    assert means["chrf"] == [
        {"seed": "1", "mean": 15, "differences": {"near": 1.5}},
        {"seed": "2", "mean": 18, "differences": {"near": 1.0}},
    ]
    rows = [line.split() for line in means_table(means, list(documents), (), {"near": (), "far": ()}).split("\n")]
    assert rows[1:3] == [["chrf", "1", "15.00", "+1.50", "near"], ["chrf", "2", "18.00", "+1.00", "near"]]
    assert rows[3] == ["chrf", "mean", "16.50", "±", "2.12", "+1.25", "±", "0.35", "near"]


def write_log(folder: Path, seconds: float, *, gpus: int = 0, ended: bool = True, options: str = "") -> None:
    """Write the log of a training of one epoch with 50 updates."""
    cfg = f"{{'_name': None, 'distributed_world_size': {gpus or 1}{options}, 'seed': 1}}\n"
    values = {"epoch": 1, "train_num_updates": "50", "train_train_wall": f"{seconds:g}", "train_wall": "9"}
    if gpus:
        values["train_gb_free"] = "70.5"
    folder.mkdir(parents=True)
    end = "done training in 9.0 seconds\n" if ended else ""
    (folder / "train.log").write_text(f"{cfg}{json.dumps(values)}\n{end}")


def test_hours_of_several_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU hours count GPUs; the nearest baseline that was trained with the seed; no share where there can be none."""
    monkeypatch.setenv("WORK", str(tmp_path))
    systems = tmp_path / "systems"
    for seed, seconds in (("", 3600), ("-seed2", 7200), ("-seed3", 3600), ("-seed4", 3600), ("-seed5", 3600)):
        write_log(systems / f"sdt{seed}", seconds, gpus=2)
    write_log(systems / "deep_blocks", 3600, gpus=4)
    write_log(systems / "deep-seed2", 14_400, gpus=8)
    write_log(systems / "deep-seed3", 3600)
    write_log(systems / "deep-seed4", 3600, gpus=2, options=", 'bf16': True")
    write_log(systems / "deep-seed5", 3600, gpus=2, ended=False)
    runs = training_times("sdt", ["deep_blocks", "deep"], ["1", "2", "3", "4", "5", "6"])
    assert [run.get("hours") for run in runs] == [2, 4, 2, 2, 2, None]
    assert [run.get("saved") for run in runs] == [0.5, 0.875, None, None, None, None]
    assert runs[0]["baseline"]["system"] == "deep_blocks"
    assert runs[1]["baseline"]["system"] == "deep"
    reasons = [run["not_comparable"] for run in runs[:5]]
    assert reasons[:2] == [None, None]
    for reason, word in zip(reasons[2:], ("CPU", "bf16", "ended"), strict=True):
        assert word in reason
    printed = times_table(runs)
    for reason in reasons[2:]:
        assert reason in printed
    (mean,) = [line.split() for line in printed.split("\n") if line.split()[:1] == ["mean"]]
    assert mean[:4] == ["mean", "2.4", "±", "0.89"]
    assert "68.8%" in mean
    assert "seed 6" in printed
