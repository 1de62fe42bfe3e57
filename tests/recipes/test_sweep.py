"""A registered plan: what its trainings are, how it chooses, that it goes on after a kill, and what its tables say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import comparison
import numpy as np
import plan_results
import pytest
import sweep
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY
from forked_python import ForkedPython
from plans import Plan, Run
from recipe_runs import SMALL_TEXT, Work, small
from scipy.stats import t
from tiny_models import task_of

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.fairseq_transformer import is_unused_copy
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import COLUMNS, corpus_bleu, count_sentences, to_text
from fairseq_depthwise.figures import write_figure

MULTI30K = sweep.PLANS / "multi30k.toml"

SMALL = " ".join([*small(16), "--max-tokens 400 --optimizer adam --lr-scheduler polynomial_decay --num-workers 0"])
PLAN = f"""
recipe = "multi30k"
primary = {{ system = "depthwise_lstm_open", base = "depthwise_lstm_open", metric = "sacrebleu" }}
tests = ["test_2016_flickr", "test_2018_flickr"]
updates = {{ grid = 4, final = 6 }}
seeds = [1]
beam = 2
lenpen = 1.0
warm_up = 0.2
options = "{SMALL} --valid-subset valid,valid1 --ignore-unused-valid-subsets --validate-interval 100000
--save-interval-updates 2 --keep-interval-updates 1 --no-epoch-checkpoints --log-format json
--criterion label_smoothed_cross_entropy_with_auxiliary --label-smoothing 0.1"
[systems]
depthwise_lstm_open = "--depthwise-hidden-dim 16"
[grid]
dropout = [0.1]
lr = [0.01, 0.03]
[beyond]
""".replace("subsets --validate-interval 100000\n", "subsets --validate-interval 100000 ").replace("json\n", "json ")


def plan_of(tmp_path: Path, text: str = "", results: str = "results") -> Plan:
    path = tmp_path / "plan.toml"
    path.write_text(text or MULTI30K.read_text())
    return Plan(path, tmp_path / results)


def add(plan: Plan, run: Run, loss: float, /, **further: Any) -> None:
    result = {"plan": plan.digest, "values": dict(run.values or ()), "valid": [[10, loss + 1], [20, loss]]}
    result |= {"seen": [[20, loss - 1]], "parameters": 1234, "seconds": 60.0, "from_update": 0, "gpus": 0} | further
    if "scores" in result:
        result["scores"] = dict.fromkeys(plan.content["tests"], 0.0) | result["scores"]
    plan.results.mkdir(parents=True, exist_ok=True)
    (plan.results / f"{run.name}.json").write_text(json.dumps(result))


@pytest.mark.parametrize("path", sorted(sweep.PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_trainings_differ_in_a_model_of_equal_size_only(path: Path, tmp_path: Path) -> None:
    plan = Plan(path, tmp_path)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "train.en-de.en.idx").touch()
    rest, sizes = set(), {}
    same = ("dropout", "lr", "attention_dropout", "activation_dropout", "max_tokens", "warmup_updates", "adam_betas",
            "label_smoothing", "lr_scheduler", "max_update", "seed", "update_freq", "clip_norm", "bf16")  # fmt: skip
    for system in plan.systems:
        for run in (plan.grid(system)[0], Run(system, 2)):
            command = plan.command(run, {"lr": 0.5, "dropout": 0.25}, tmp_path, tmp_path, on_gpu=False)
            given = options.parse_args_and_arch(options.get_training_parser(), command[4:])
            if given.lr_scheduler == "polynomial_decay":
                assert given.max_update == int(given.total_num_update)
            rest.add(tuple(str(getattr(given, name)) for name in same))
        if stages := getattr(given, "growth_stages", None):
            given.encoder_layers = int(stages.rpartition(",")[2].partition(":")[0])  # the task's part
        model = ARCH_MODEL_REGISTRY[given.arch].build_model(given, task_of(6000, 6000))
        sizes[system] = sum(value.numel() for name, value in model.named_parameters() if not is_unused_copy(name))
    assert len(rest) == 2
    larger = {f"multi30k_{name}" for name in ("quick", "distilled", "shapes", "families")}  # units, and deeper encoders
    if path.stem in larger:
        return
    if path.stem == "stages":  # those that have 24 layers in the end
        assert sizes["deep_blocks-24"] == sizes["sdt-stages"] == sizes["sdt-late"]
        return
    at_depth: dict[str, list[int]] = {}
    for system, size in sizes.items():
        depth = re.search(r"\d*$", system)
        at_depth.setdefault(depth[0] if depth else "", []).append(size)
    assert all(max(group) < 1.03 * min(group) for group in at_depth.values())


def test_a_grid_grows_until_no_neighbor_of_its_best_is_left(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)

    def loss(run: Run) -> float:
        values = dict(run.values or ())
        return abs(values["dropout"] - 0.4) + abs(np.log2(values["lr"] / 0.024))

    for run in plan.grid("transformer"):
        add(plan, run, 3 + loss(run))
    tried = []
    while plan.best("transformer") is None:
        run = next(run for run in plan.grid("transformer") if plan.result(run) is None)
        tried.append(tuple(dict(run.values or ()).values()))
        add(plan, run, 3 + loss(run))
    # Around (0.3, 0.012), then around (0.3, 0.024), then around (0.4, 0.024).
    assert tried == [(0.4, 0.012), (0.3, 0.024), (0.2, 0.024), (0.4, 0.024), (0.3, 0.048), (0.5, 0.024), (0.4, 0.048)]
    best = plan.best("transformer")
    assert best is not None
    assert dict(best.values or ()) == {"dropout": 0.4, "lr": 0.024}
    # A training that fails is chosen by nobody, and the results of another plan are no results.
    (plan.results / f"{best.name}.json").write_text(json.dumps({"plan": plan.digest, "failed": "NaN"}))
    assert plan.best("transformer") != best
    assert "failed" in comparison.make_tables(plan)["grid"]
    add(plan, best, 3.0, plan="of before")
    with pytest.raises(UserError, match="of before"):
        plan.result(best)


def test_the_primary_comparison(tmp_path: Path) -> None:
    plan, bleu = plan_of(tmp_path), TranslationMetric("sacrebleu")
    references = [f"a {word} sees the cat number {word} again" for word in "abcdefghijkl"]
    words = {"transformer": "dog", "depthwise_lstm_open": "cat"}
    scores: dict[str, list[float]] = {}
    for system, word in words.items():
        for seed in plan.content["seeds"]:
            found = [line.replace("cat", word) if number < seed else line.replace("sees", "saw")
                     for number, line in enumerate(references)]  # fmt: skip
            counts = count_sentences(bleu, found, references)
            scores.setdefault(system, []).append(corpus_bleu(bleu, counts))
            score = {"sacrebleu": scores[system][-1], "chrf": 1.0}
            add(plan, Run(system, seed), 3.0, scores=score, sentences=to_text(counts), updates=20)
    table = comparison.make_tables(plan)["final"]
    differences = np.subtract(scores["depthwise_lstm_open"], scores["transformer"])
    half = t.ppf(0.975, 4) * differences.std(ddof=1) / 5**0.5
    assert f"Mean {differences.mean():+.2f}; 95 % interval over seeds " in table
    assert f"{differences.mean() - half:+.2f} to {differences.mean() + half:+.2f} (Student)" in table
    assert "supported at this size" in table
    assert f"{np.mean(scores['transformer']):.2f} ± {np.std(scores['transformer'], ddof=1):.2f}" in table
    (plan.results / "transformer-seed5.json").unlink()
    assert "interval" not in comparison.make_tables(plan)["final"]  # before the last has ended


def test_all_pairs_are_compared_and_drawn(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    for number, system in enumerate(plan.systems):
        for seed in plan.content["seeds"]:
            scores = {"sacrebleu": 30 + number + seed * 0.1 * (number + 1), "chrf": 50.0 + seed * number}
            seen = {
                "scores": scores,
                "sentences": to_text(np.ones((2, COLUMNS), np.uint16)),
                "seen": [[10, 2], [20, 1]],
            }
            add(plan, Run(system, seed), 3.0 - number * 0.1 * seed, **seen)
    tables = comparison.make_tables(plan)
    cells = [line.split(" | ") for line in tables["compared"].splitlines()[2:]]
    assert len(cells) == 6
    ps = sorted(float(line[4]) for line in cells if line[5] != "primary")
    assert len(ps) == 5
    for line in cells:
        if line[5] != "primary":  # by hand: the largest of the smaller ones, each times what is left
            corrected = max((5 - rank) * p for rank, p in enumerate(ps) if p <= float(line[4]))
            assert float(line[5]) == pytest.approx(min(1, corrected), rel=0.06)  # of two printed digits
    assert (
        tables["scores"]
        .splitlines()[2]
        .startswith("| fairseq's Transformer, pre-norm | 0.00 M | 5 | 30.30 ± 0.16 |  |")
    )
    write_figure(str(tmp_path / "figure.svg"), (9, 3), lambda figure: comparison.draw(plan, figure))
    assert all(system in (tmp_path / "figure.svg").read_text() for system in plan.systems)
    # A failed training is told, and its system is compared with none.
    (plan.results / "transformer-seed5.json").write_text(json.dumps({"plan": plan.digest, "failed": "NaN"}))
    tables = comparison.make_tables(plan)
    assert "| 4, 1 failed |" in tables["final"]
    assert "| `transformer` |" not in tables["compared"]


def test_what_each_part_is_worth(tmp_path: Path) -> None:
    plan, whole = (Plan(sweep.PLANS / f"{name}.toml", tmp_path) for name in ("multi30k_parts", "multi30k"))
    worth = {"bias": 0.3, "gain": -0.5, "skip": 1.0}
    runs: list[tuple[Plan, str, set[str]]] = [(plan, name, {*name[15:].split("_")}) for name in plan.systems]
    runs += [(whole, "depthwise_lstm", set()), (whole, "depthwise_lstm_open", {*worth})]
    for of, name, parts in runs:
        assert not comparison.make_tables(plan)["parts"], "before all have ended"
        for seed in plan.content["seeds"]:
            score = sum(worth[part] for part in parts) + ({"bias", "skip"} <= parts)  # 1 for both together
            found: dict[str, Any] = {"scores": {"sacrebleu": 30 + score * seed / 2, "chrf": seed * len(parts)}}
            found["valid"] = [[600, 4.0 + 0.1 * len(parts) * seed], [3000, 3.0]]
            add(of, Run(name, seed), 3.0, sentences=to_text(np.ones((2, COLUMNS), np.uint16)), **found)
    cells = {line[0]: line[4:6] for row in comparison.make_tables(plan)["parts"].splitlines()[2:]
             if (line := row.strip("| ").split(" | "))}  # fmt: skip
    assert len(cells) == 2**3 + 3
    assert not comparison.make_tables(whole)["parts"]
    assert cells["gain + skip"] == ["30.50 ± 0.25", "4.00 ± 2.00"]
    # Half of the sets with a bias have the skip, too, so half of what both give together is the bias's.
    means = {part: float(cells[f"with - without {part}"][0].split()[0]) for part in worth}
    assert means == pytest.approx({"bias": 0.8, "gain": -0.5, "skip": 1.5})
    # Each part adds 1, 2 and 3 with the three seeds, whose standard deviation is 1.
    half = t.ppf(0.975, 2) / 3**0.5
    assert cells["with - without gain"][1] == f"+2.00 ({2 - half:+.2f} to {2 + half:+.2f})"


@pytest.mark.long
@pytest.mark.xdist_group("recipes")
def test_a_sweep_that_was_killed_ends_like_one_that_was_not(prepared: Callable[[str], Work], tmp_path: Path) -> None:
    work = prepared("multi30k")
    plan = plan_of(tmp_path, PLAN)

    def start(name: str) -> subprocess.Popen[bytes]:
        folder = tmp_path / name / "multi30k"
        if not folder.exists():
            folder.parent.mkdir()
            subprocess.run(["cp", "-r", str(work.folder), str(folder)], check=True)
        command = [sys.executable, str(sweep.HERE / "sweep.py"), str(tmp_path / "plan.toml")]
        command += ["--work", str(folder.parent)]
        environment = {**os.environ, **SMALL_TEXT, **work.environment, "PYTHON": sys.executable}
        command += ["--jobs", "2", "--nice", "0", "--results", str(tmp_path / f"{name}-results")]
        return subprocess.Popen(command, env=environment)

    alone = start("alone")
    killed = start("killed")
    last = tmp_path / f"killed/multi30k/protocol/{plan.digest}/depthwise_lstm_open-dropout0.1-lr0.01/{sweep.LAST}"
    end = time.monotonic() + 120
    while not last.exists():
        assert killed.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    children = [int(pid) for pid in Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()]
    killed.kill()
    killed.wait()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    assert alone.wait(timeout=240) == 0
    assert start("killed").wait(timeout=240) == 0
    results = {
        name: {path.name: json.loads(path.read_text()) for path in (tmp_path / f"{name}-results/plan").iterdir()}
        for name in ("alone", "killed")
    }
    assert len(results["alone"]) == len(list(plan.runs())) == 3
    for file, result in results["alone"].items():
        other = results["killed"][file]
        for name in ("valid", "seen", "parameters", "values", "scores", "sentences"):
            assert result.get(name) == other.get(name)
    scores = results["alone"]["depthwise_lstm_open-seed1.json"]["scores"]
    assert scores.keys() == {*plan.content["tests"], "sacrebleu", "chrf"}
    assert not list((tmp_path / "alone").glob("multi30k/protocol/*/*-lr*/checkpoints"))


@pytest.mark.parametrize(
    ("right", "wrong", "word"),
    [
        ("[grid]", "[tuned_as]\ntransformer = 'mute'\n[grid]", "mute"),
        (
            "[grid]",
            "[tuned_as]\ntransformer = 'depthwise_lstm'\ndepthwise_lstm = 'depthwise_lstm_open'\n[grid]",
            "grid",
        ),
        ("[grid]", "[seeds_of]\nmute = [1]\n[grid]", "mute"),
        ("[grid]", "[seeds_of]\ntransformer = [1, 2, 1]\n[grid]", "twice"),
        ("[grid]", "[secondary]\nsystem = 'transformer'\n[grid]", "secondary"),
        ("[grid]", "[[secondary]]\nsystem = 'transformer'\nbase = 'mute'\nmetric = 'chrf'\n[grid]", "mute"),
        ('metric = "sacrebleu"', 'metric = "hopps"', "hopps"),
        ('metric = "sacrebleu"', 'metric = "sacrebleu", margins = 1', "margins"),
        ('base = "transformer"', 'base = "transformr"', "transformr"),
        ("lenpen = 1.0", "", "lenpen"),
        ("lenpen = 1.0", "lenpen = 1.0\nmetrics = ['acuracy']", "acuracy"),
        ("lenpen = 1.0", "lenpen = one", "TOML"),
        ("lenpen = 1.0", "lenpen = nan", "lenpen"),
        ("lenpen = 1.0", 'lenpen = "x"', "lenpen"),
        ("beam = 5", "beam = 0", "beam"),
        ("beam = 5", "beam = 2.0", "beam"),
        ("warm_up = 0.2", "warm_up = 2.0", "warm_up"),
        ("final = 3000", "final = 0", "final"),
        (", final = 3000", "", "final"),
        ("seeds = [1, 2, 3, 4, 5]", "seeds = []", "seeds"),
        ("seeds = [1, 2, 3, 4, 5]", 'seeds = "12"', "seeds"),
        ("seeds = [1, 2, 3, 4, 5]", "seeds = [-1]", "seeds"),
        ("lr = [0.003, 0.006, 0.012]", "lr = []", "lr"),
        ('tests = ["test_2016_flickr", "test_2017_flickr", "test_2018_flickr"]', 'tests = "x"', "tests"),
        ('recipe = "multi30k"', 'recipe = "hopz"', "hopz"),
        ('depthwise_lstm_open = ""', 'depthwise_lstm_opened = ""', "depthwise_lstm_opened"),
        ('depthwise_lstm_open = ""', "depthwise_lstm_open = '--a \"b'", "systems.depthwise_lstm_open"),
        ('depthwise_lstm_open = ""', 'depthwise_lstm_open = "--a {eight_tenths}"', "systems.*eight_tenths"),
        ('depthwise_lstm_open = ""', 'depthwise_lstm_open = "--a {"', "systems.depthwise_lstm_open"),
        ('depthwise_lstm_open = ""', """depthwise_lstm_open = '--a {"beam": 4}'""", "written twice"),
        ('depthwise_lstm_open = ""', 'depthwise_lstm_open = "--seed=5"', "--seed"),
        ("--optimizer adam", "--optimizer adam --max-update 7", "options.*--max-update"),
        ("--optimizer adam", "--optimizer 'adam", "options"),
        ("dropout = [0.1, 0.2, 0.3]", "dropout = [0.1, 0.2, 0.3]\nseed = [1, 2]", "grid.*--seed"),
        ("dropout = [0.0, 0.4, 0.5]", "dropuot = [0.0, 0.4, 0.5]", "beyond.dropuot"),
        ('"test_2017_flickr"', '"test_2016_flickr"', "test_2016_flickr twice"),
    ],
)
def test_mistakes_are_found_before_the_first_training(tmp_path: Path, right: str, wrong: str, word: str) -> None:
    plan = MULTI30K.read_text()
    assert right in plan
    with pytest.raises(UserError, match=word):
        plan_of(tmp_path, plan.replace(right, wrong, 1))


@pytest.mark.parametrize(
    "text",
    ['{"plan": "x", "valid": [[1', "", "[1]", "3", "{}", '{"valid": []}', '{"valid": null}', '{"valid": [[10, "x"]]}'],
)
def test_files_that_are_no_results(tmp_path: Path, text: str) -> None:
    plan = plan_of(tmp_path)
    run = plan.grid("transformer")[0]
    plan.results.mkdir(parents=True)
    (plan.results / f"{run.name}.json").write_text(text)
    with pytest.raises(UserError, match=f"{run.name}.json"):
        plan.result(run)


def test_braces_of_options_are_written_twice(tmp_path: Path) -> None:
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "train.en-de.en.idx").touch()
    options = """'--growth-stages 6:{quarter}u,12:u --eval-bleu-args "{{}}"'"""
    plan = plan_of(
        tmp_path, MULTI30K.read_text().replace('depthwise_lstm_open = ""', f"depthwise_lstm_open = {options}")
    )
    command = plan.command(Run("depthwise_lstm_open", 2), {}, tmp_path, tmp_path, on_gpu=False)
    assert "6:750u,12:u" in command
    assert command[command.index("--eval-bleu-args") + 1] == "{}"


@pytest.mark.xdist_group("recipes")
def test_texts_that_are_no_pairs_are_not_binarized(
    tmp_path: Path, forked_python: ForkedPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "data-bin" / "train.en-de.en.idx").touch()
    (tmp_path / "data-bin" / "dict.en.txt").write_text("a 1\n")
    for part, sides in (("train", ("a\n", "a\na\n")), ("valid", ("a\n", "a\n"))):
        for language, text in zip(("en", "de"), sides, strict=True):
            (tmp_path / "text" / f"bpe.{part}.{language}").write_text(text)
    monkeypatch.setattr(sys, "executable", str(forked_python.python))
    with pytest.raises(UserError, match="fairseq-preprocess"):
        sweep.prepare(plan_of(tmp_path), tmp_path)
    assert not (tmp_path / "protocol-bin").exists()


def test_test_sets_that_are_not_there(tmp_path: Path) -> None:
    for folder in ("data-bin", "protocol-bin", "text"):
        (tmp_path / "multi30k" / folder).mkdir(parents=True)
    (tmp_path / "multi30k" / "data-bin" / "train.en-de.en.idx").touch()
    for language in ("en", "de"):
        (tmp_path / "multi30k" / "text" / f"test.test_2016_flickr.raw.{language}").touch()
    begun = sweep.Sweep([plan_of(tmp_path)], tmp_path, 0, re.compile(".*"))
    with pytest.raises(UserError, match="test_2017_flickr"):
        begun.train(1)


def test_only_some_trainings(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, PLAN)
    values = [dict(run.values or ()) for run in plan.grid("depthwise_lstm_open")]
    some = sweep.Sweep([plan], tmp_path, 0, re.compile(".*lr0.03"))
    begun = some.next_run()
    assert begun is not None
    assert dict(begun[1].values or ()) == values[1]
    add(plan, begun[1], 3.0)
    assert some.next_run() is None
    # A final training waits for its grid, whichever trainings are asked for.
    final = sweep.Sweep([plan], tmp_path, 0, re.compile(".*-seed1"))
    assert final.next_run() is None
    add(plan, plan.grid("depthwise_lstm_open")[0], 2.0)
    assert final.next_run() == (plan, Run("depthwise_lstm_open", 1))


@pytest.mark.parametrize(("last_line", "is_result"), [(sweep.DIVERGED, True), ("No space left on device", False)])
def test_a_training_that_diverged_is_a_result(
    last_line: str, is_result: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, PLAN)
    (tmp_path / "multi30k" / "data-bin").mkdir(parents=True)
    (tmp_path / "multi30k" / "data-bin" / "train.en-de.en.idx").touch()
    begun = sweep.Sweep([plan], tmp_path, 0, re.compile(".*"))

    def fail(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, float]:
        (folder / "output.log").write_text(f"| epoch 001\nfairseq-train: error: {last_line} in update 3\n")
        return 1, 2.0

    monkeypatch.setattr(begun, "run", fail)
    run = plan.grid("depthwise_lstm_open")[0]
    if is_result:
        begun.train_one(plan, run, 0)
        assert "failed" in (plan.result(run) or {})
    else:
        with pytest.raises(UserError, match=last_line):
            begun.train_one(plan, run, 0)
        assert plan.result(run) is None


def test_seconds_of_all_parts(tmp_path: Path) -> None:
    parts = sweep.begin_part(tmp_path, 0, "abc")
    assert sweep.seconds_of(parts) is None
    parts[-1]["seconds"] = 10.5
    sweep.write_json(tmp_path / sweep.PARTS, parts)
    parts = sweep.begin_part(tmp_path, 200, "abd")
    parts[-1]["seconds"] = 4.0
    assert sweep.seconds_of(parts) == 14.5
    # The second part was killed, with the program that waited for it.
    assert sweep.seconds_of(sweep.begin_part(tmp_path, 400, "abd")) is None


def by_hand(values: list[float]) -> tuple[float, float, float]:
    """Return a mean and Student's 95 % interval."""
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values)), float(np.mean(values) - half), float(np.mean(values) + half)


def add_scores(plan: Plan, scores: dict[str, list[float]], losses: dict[str, list[float]]) -> None:
    counts = to_text(np.ones((2, COLUMNS), np.uint16))
    for system, of_seeds in scores.items():
        for seed, score, loss in zip(plan.seeds(system), of_seeds, losses[system], strict=True):
            both = {"sacrebleu": score, "chrf": 50.0 + seed}
            add(plan, Run(system, seed), loss, scores=both, sentences=counts)


def test_a_difference_of_differences(tmp_path: Path) -> None:
    plan = Plan(sweep.PLANS / "depth.toml", tmp_path)
    systems = ("transformer-3_3", "depthwise_lstm_open-3_3", "transformer-12_12", "depthwise_lstm_open-12_12")
    scores = {system: [30 + number**2 + seed * (number - 1) / 7 for seed in range(5)]
              for number, system in enumerate(systems)}  # fmt: skip
    losses = {system: [3 - number / 4 - seed * number / 50 for seed in range(5)]
              for number, system in enumerate(systems)}  # fmt: skip
    add_scores(plan, scores, losses)
    primary, secondary = (line for line in comparison.make_tables(plan)["final"].splitlines() if "Student" in line)
    for line, of, verdict in ((primary, scores, "supported"), (secondary, losses, "undecided")):
        shallow = np.subtract(of[systems[1]], of[systems[0]])
        deep = np.subtract(of[systems[3]], of[systems[2]])
        mean, low, high = by_hand(list(deep - shallow))
        digits = 2 if of is scores else 3
        if verdict == "undecided":  # of a loss the lower is the better
            verdict = "supported" if high < 0 else "not reproduced" if low > 0 else verdict
        assert f"Mean {mean:+.{digits}f}; 95 % interval over seeds {low:+.{digits}f} to {high:+.{digits}f}" in line
        assert f": {verdict} at this size" in line.replace("(Student). By the first", "(Student)")
    # Nine pairs were registered; two can be compared, and the others count as 1.
    rows = [line.split(" | ") for line in comparison.make_tables(plan)["compared"].splitlines()[2:]]
    assert [row[2] for row in rows] == ["5", "5"]
    smallest = min(float(row[4]) for row in rows)
    assert min(float(row[5]) for row in rows) == pytest.approx(min(1, 9 * smallest), rel=0.06)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([-0.2, -0.3, -0.1, -0.2, -0.2], "supported"),
        ([-0.9, -0.8, -1.0, -0.9, -0.8], "not reproduced"),
        ([-0.9, -0.1, -0.6, -0.2, -0.8], "undecided"),
    ],
)
def test_not_worse_by_more_than_a_margin(tmp_path: Path, differences: list[float], verdict: str) -> None:
    plan = Plan(sweep.PLANS / "stages.toml", tmp_path)
    base = [31.0, 31.5, 30.5, 31.2, 31.1]
    scores = {"deep_blocks-24": base, "sdt-stages": [sum(pair) for pair in zip(base, differences, strict=True)]}
    add_scores(plan, scores, {system: [3.0] * 5 for system in scores})
    (line,) = [line for line in comparison.make_tables(plan)["final"].splitlines() if "Student" in line]
    _, low, high = by_hand(differences)
    assert f"{low:+.2f} to {high:+.2f} (Student)" in line
    assert f"{verdict} at this size" in line
    assert verdict == ("supported" if low > -0.5 else "not reproduced" if high < -0.5 else "undecided")


def test_failures_leave_a_comparison_undecided(tmp_path: Path) -> None:
    plan = Plan(sweep.PLANS / "stages.toml", tmp_path)
    scores = {system: [30.0, 31.0, 32.0, 33.0, 34.0] for system in ("deep_blocks-24", "sdt-stages")}
    add_scores(plan, scores, {system: [3.0] * 5 for system in scores})
    for seed in (2, 5):
        failed = {"plan": plan.digest, "failed": "NaN"}
        (plan.results / f"sdt-stages-seed{seed}.json").write_text(json.dumps(failed))
    table = comparison.make_tables(plan)["final"]
    assert "undecided" in table
    assert "2 of `sdt-stages`" in table
    assert "| 3, 2 failed |" in table
    assert "Student" not in table


def test_the_best_at_an_edge_is_marked(tmp_path: Path) -> None:
    plan = Plan(sweep.PLANS / "stages.toml", tmp_path)
    while plan.best("sdt-stages") is None:  # the lower the rate, the better
        run = next(run for run in plan.grid("deep_blocks-24") if plan.result(run) is None)
        add(plan, run, 3 + dict(run.values or ())["lr"])
    best = plan.best("sdt-stages")
    assert best is not None
    assert dict(best.values or ())["lr"] == 0.0015
    table = comparison.make_tables(plan)["grid"]
    assert "(edge of lr)" in table
    assert "sdt-stages" not in table


@pytest.mark.parametrize(
    ("accuracies", "steps"), [([100, 95, 90, 89.9, 99], 3), ([89, 100], 0), ([90.0] * 8, 8), ([], 0)]
)
def test_steps_that_are_answered(accuracies: list[float], steps: int) -> None:
    assert plan_results.count_answered_hops(accuracies) == steps
