"""``fairseq-depthwise report``: what the page and the numbers show of logs, whole, continued, grown and damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

Document = Callable[..., Any]

#: As fairseq logs the options of a model of ours, and of a stock one.
OURS = (
    "{'_name': None, 'common': {'_name': None, 'seed': 1, 'fp16': False}, "
    "'task': {'_name': 'translation_layer_growth', 'growth_side': 'encoder'}, "
    "'model': {'_name': 'sdt_transformer', 'encoder_layers': 2, 'decoder_layers': 1}, "
    "'optimization': {'_name': None, 'lr': [0.1], 'eval_bleu_args': '{\"beam\": 1}'}}"
)
STOCK = (
    "{'_name': None, 'model': Namespace(seed=1, arch='transformer', encoder_layers=6, decoder_layers=6, adam=(1, 2))}"
)
GREW = "grew the encoder from 2 to 4 layers after 2 updates in 0.03 s; 4,567 parameters, learning rate 0.003"


def line(message: str) -> str:
    return f"2026-01-31 23:57:00 | INFO | fairseq | {message}\n"


def inner(update: int, wall: float | None = None, loss: object = "5.0", **values: object) -> str:
    """What is logged of training: numbers are text."""
    shown = {"epoch": 1, "update": 0.1, "loss": loss, "wps": "900.5", "num_updates": str(update), "lr": "0.001"}
    return line(json.dumps({**shown, "wall": str(update if wall is None else wall), **values}))


def valid(update: int, loss: str = "4.5", subset: str = "valid") -> str:
    values = {"loss": loss, "ppl": "22.6", "bleu": "3.5", "num_updates": str(update), "best_loss": loss}
    return line(json.dumps({"epoch": 1, **{f"{subset}_{name}": value for name, value in values.items()}}))


def epoch(update: int, depth: int) -> str:
    """What is logged of an epoch's training."""
    return line(json.dumps({"epoch": 1, "train_num_updates": str(update), "train_depth": str(depth)}))


def steps(number: int, update: int, seconds: float, wall: float, **values: object) -> str:
    """What is logged at the end of an epoch, or where a process ends within one: seconds of all its training steps."""
    values = {"num_updates": str(update), "train_wall": f"{seconds:g}", "wall": f"{wall:g}", **values}
    return line(json.dumps({"epoch": number, **{f"train_{name}": value for name, value in values.items()}}))


def begun(processes: int = 1, precision: str = "") -> str:
    """What is logged when a process starts."""
    options = {"distributed_world_size": processes, **({precision: True} if precision else {})}
    return line(str({"_name": None, "distributed_training": {"_name": None, **options}}))


DONE = line("done training in 9.0 seconds")


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def run_of(tmp_path: Path, document: Document) -> Document:
    """``run_of(*lines)`` is what ``--json`` prints of a log."""

    def read(*lines: str) -> Any:
        (found,) = document("report", write(tmp_path / "one" / "train.log", *lines).parent)["runs"]
        return found

    return read


def test_numbers(run_of: Document) -> None:
    counted = line("num. shared model params: 12,345 (num. trained: 12,345)")
    run = run_of(line(OURS), counted, "noise\n", inner(1), inner(2, loss="nan"), valid(2), valid(2, "1", "other"))
    assert run["name"] == "one"
    assert list(run["series"]) == ["train_inner", "valid", "other"]
    assert run["series"]["train_inner"]["loss"] == {"updates": [1, 2], "seconds": [1, 2], "values": [5, None]}
    assert run["series"]["valid"]["bleu"] == {"updates": [2], "seconds": [2], "values": [3.5]}
    assert run["options"] == {
        "--arch": "sdt_transformer", "--task": "translation_layer_growth", "--seed": "1", "--growth-side": "encoder",
        "--encoder-layers": "2", "--decoder-layers": "1", "--lr": "[0.1]", "--eval-bleu-args": '{"beam": 1}',
    }  # fmt: skip
    assert run["summary"] == {
        "architecture": "sdt_transformer", "encoder_layers": "2", "decoder_layers": "1", "grown_after": [],
        "continued_after": [], "parameters": 12345, "updates": 2, "seconds": 2, "time": "0:00:02",
        "hours": None, "trained_on": None, "percent_saved": None, "hours_not_comparable": None,
        "words_per_second": 900.5,
        "loss": {"value": 4.5, "update": 2}, "perplexity": 22.6, "bleu": {"value": 3.5, "update": 2},
        "peak_learning_rate": 0.001, "not_finite": {"loss": 1},
    }  # fmt: skip


def test_growth(run_of: Document) -> None:
    """The last reading before it says where it was; how many parameters there are then is not in every log."""
    counted = line("num. shared model params: 1,234 (num. trained: 1,234)")
    before = (line(OURS), counted, inner(1, depth="2"), epoch(2, 2))
    for grew, parameters in ((line(GREW), 4567), ("", None)):
        run = run_of(*before, grew, inner(3, depth="4"), inner(4, depth="4"))["summary"]
        assert (run["grown_after"], run["encoder_layers"], run["decoder_layers"]) == ([2], "4", "1")
        assert run["parameters"] == parameters
    killed = (inner(2, depth="2"), inner(3, depth="4"), line(OURS), counted, inner(2, depth="2"), inner(3, depth="4"))
    assert run_of(*before[:-1], *killed)["summary"]["parameters"] is None


def test_a_killed_run_that_went_on(run_of: Document) -> None:
    """What was done twice counts once, and so does its time."""
    first = (line(OURS), *(inner(update, loss="5") for update in (1, 2)), valid(2), inner(3), inner(4), inner(5)[:-9])
    second = (inner(update, update - 1.5, "3") for update in (3, 4, 5))
    run = run_of(*first, "\n", line(OURS), *second)
    assert run["series"]["train_inner"]["loss"] == {
        "updates": [1, 2, 3, 4, 5], "seconds": [1, 2, 3.5, 4.5, 5.5], "values": [5, 5, 3, 3, 3],
    }  # fmt: skip
    assert run["summary"]["continued_after"] == [2]
    # Stopped and continued: nothing is repeated, and the clock begins again.
    run = run_of(line(OURS), inner(1, 10), line(OURS), inner(2, 30))
    assert run["series"]["train_inner"]["wall"]["seconds"] == [10, 40]


@pytest.mark.parametrize(
    "damaged",
    [
        inner(9)[:-9], inner(9).replace('"9"', '"nan"'), inner(9).replace('"9"', "1e999"), '{"a": ' + "[" * 100_000,
        '{"epoch": 1}', '{"num_updates": {}}', "{'_name'", "num. shared model params: , ", "\0\ufffd" * 50,
        f"x {{'_name': 1 {'a=[ ' * 400_000}}}",  # would take hours
    ],
    ids=lambda text: text[-9:],
)  # fmt: skip
def test_damaged_lines_are_skipped(damaged: str, run_of: Document) -> None:
    run = run_of(f"{damaged}\n", inner(1, loss="1" + "0" * 400), f"{damaged}\n", inner(2, note="text"))
    assert run["series"]["train_inner"]["loss"] == {"updates": [1, 2], "seconds": [1, 2], "values": [None, 5]}


SIMPLE = (
    "2026-01-31 | INFO | train_inner | epoch 001:     10 / 74 loss=5.5, wps=900.5, num_updates=10, depth=2, wall=9\n"
    "2026-01-31 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 4.5 | bleu 3.5 | num_updates 10\n"
    "2026-01-31 | INFO | train | epoch 001 | loss 5 | num_updates 20 | depth 2 | train_wall 7 | wall 19\n"
    "epoch 002:     10 / 74 loss=3, wps=800, num_updates=30, depth=4, wall=30\n"  # in --log-file
)
#: Bars of a terminal, as tee and script write them: each is shown several times, with the metrics of the last update.
TQDM = (
    "\repoch 001:   0%|          | 0/74 [00:00<?, ?it/s]\repoch 001:  14%|█▎        | 10/74 [00:04<00:05,  7.4it/s, "
    "loss=5.5, wps=900.5, num_updates=10, depth=2, wall=9]\repoch 001:  15%|█▎        | 11/74 [00:04<00:05,  7.4it/s, "
    "loss=5.5, wps=900.5, num_updates=10, depth=2, wall=9]\repoch 001 | valid on 'valid' subset: 0%| | 0/4 [00:00<?, ?i"
    "t/s]\n" + "\n".join(SIMPLE.splitlines()[1:3]) + "\repoch 002:  14%|█▎  | 10/74 [00:04<00:05,  1.35s/it, loss=3, "
    "wps=800, num_updates=30, depth=4, wall=30]"
)  # fmt: skip


@pytest.mark.parametrize("log", [SIMPLE, TQDM], ids=["simple", "tqdm"])
def test_formats_without_json(log: str, run_of: Document) -> None:
    run = run_of(begun(), log)
    assert {split: values["loss"]["values"] for split, values in run["series"].items()} == {
        "train_inner": [5.5, 3], "valid": [4.5], "train": [5],
    }  # fmt: skip
    assert run["series"]["train_inner"]["loss"]["seconds"] == [9, 30]
    assert (run["summary"]["bleu"]["value"], run["summary"]["words_per_second"]) == (3.5, 850.25)
    assert run["summary"]["grown_after"] == [20]


def test_the_log_of_train(run_of: Document) -> None:
    """Metrics are as in fairseq's log; everything else is a message."""

    def as_message(text: str) -> str:
        message = text.partition("fairseq | ")[2].strip()
        return text if message.startswith('{"') else json.dumps({"time": "now", "message": message}) + "\n"

    lines = [line(OURS), inner(2, depth="2"), line(GREW), inner(3, depth="4"), steps(1, 3, 9, 10), DONE]
    assert run_of(*map(as_message, lines)) == run_of(*lines)


def test_several_logs_of_a_run(
    tmp_path: Path, document: Document, printed: Callable[..., str], refusal: Callable[..., str]
) -> None:
    """As a scheduler writes them, one for each job; their names say nothing of their order."""
    options = "{'_name': None, 'checkpoint': {'_name': None, 'save_dir': 'checkpoints'}}"
    write(tmp_path / "jobs" / "b.log", line(options), inner(1), inner(2))
    write(tmp_path / "jobs" / "a.log", line(options), inner(3, 1), inner(4, 2))
    write(tmp_path / "jobs" / "errors.log", "a warning\n")
    (run,) = document("report", tmp_path / "jobs")["runs"]
    assert run["series"]["train_inner"]["loss"]["updates"] == [1, 2, 3, 4]
    assert run["summary"]["continued_after"] == [2]
    assert re.search("continued after +2\n", printed("report", tmp_path / "jobs")), "a table without --output"
    write(tmp_path / "jobs" / "c.log", line(options.replace("checkpoints", "other")), inner(5))
    assert "c.log" in refusal("report", tmp_path / "jobs")


def test_event_files_show_what_the_log_shows(tmp_path: Path, document: Document) -> None:
    lines = [inner(1, depth=2), inner(2, depth=4), valid(2)]
    for split, updates in (("train_inner", (1, 2)), ("valid", (2,))):
        with SummaryWriter(str(tmp_path / "events" / split)) as writer:
            for update in updates:
                values = {"loss": 5.0, "wall": update, "wps": 900.5, "lr": 0.001, "depth": 2 * update}
                for name, value in ({"loss": 4.5, "ppl": 22.6, "bleu": 3.5} if split == "valid" else values).items():
                    writer.add_scalar(name, value, update)
    logged = document("report", write(tmp_path / "train.log", *lines))["runs"][0]["summary"]
    (events,) = document("report", tmp_path / "events")["runs"]
    assert {**events["summary"], "bleu": None} == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in logged.items()
    } | {"bleu": None}
    assert events["summary"]["bleu"] == logged["bleu"]


def test_the_page_of_several_runs(tmp_path: Path, printed: Callable[..., str]) -> None:
    gates = {"encoder_forget_gate": "0.5", "encoder_forget_gate_deviation": "0.1", "encoder_forget_gate_layer1": "0.4"}
    penalties = {"permutation_penalty_1": "2", "permutation_penalty_2": "3", "<b>_penalty": "1"}
    grown = [inner(update, depth=2 if update < 300 else 17, **gates, **penalties) for update in range(1, 600)]
    one = write(tmp_path / "<script>" / "train.log", line(OURS), *grown, valid(599)).parent
    other = write(tmp_path / "stock.log", line(STOCK), *(inner(n, 20 * n, n % 7, gnorm="nan") for n in range(1, 6000)))
    page = tmp_path / "page.html"
    table = printed("report", one, other, "--output", page)
    rows = {row[0]: row[1:] for row in (re.split(r"  +", text.strip()) for text in table.splitlines())}
    assert rows["<script>"] == ["stock.log"]
    assert rows["grown after"] == ["299", "-"]
    assert rows["time"] == ["0:09:59", "1 day, 9:19:40"]
    assert rows["bleu"] == ["value 3.5, update 599", "-"]
    content = page.read_text(encoding="utf-8")
    assert re.findall("<h3>(.*?)</h3>", content) == [
        "Loss", "Loss over time", "BLEU of the validation set", "BLEU of the validation set over time", "Learning rate",
        "Depth", "Speed", "Encoder forget gate", "Permutation penalty", "&lt;b&gt; penalty",
    ]  # fmt: skip
    assert len(re.findall(">17</text>", content)) == 10, "the depth above each growth, in the charts that have the run"
    assert content.count('<ul class="legend">') == content.count("<h3>"), "beside each chart"
    assert "update 599</tspan>" in content, "the point under the pointer"
    assert "#000000" not in content, "which is not seen on a dark page"
    assert "Options that differ: 8" in content
    points = [path.count("L") for path in re.findall(r' d="(.*?)"', content, re.DOTALL)]
    assert 400 < max(points) <= 1001, "of 5,999; a band has those of both sides"
    assert not re.search("<(script|b|link|img|iframe|object)[ >]", content)
    links = set(re.findall(r'(?:src|href)="(.*?)"', content))
    assert links
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"\bnan\b", re.sub(r"<table>.*?</table>", "", content))


def seconds_of(run: Any) -> float:
    return 3600 * float(run["summary"]["hours"])


def test_hours_are_those_of_training_steps(run_of: Document) -> None:
    """Neither validation, which the clock has, nor what the lines within an epoch say twice."""
    logs = (begun(), inner(1, 10, train_wall="4"), inner(2, 30, train_wall="5"), valid(2))
    assert seconds_of(run_of(*logs, steps(1, 3, 10, 60), inner(4, 80, train_wall="6"), steps(2, 5, 11, 99), DONE)) == 21
    assert seconds_of(run_of(begun(8), steps(1, 3, 10, 60))) == 80


def test_hours_of_a_run_that_was_stopped_and_resumed(run_of: Document) -> None:
    """Within an epoch, the next process counts on from its checkpoint; after a kill, some updates are done twice."""
    stopped = (begun(), steps(1, 10, 10, 12), steps(2, 14, 4, 18), DONE)
    assert seconds_of(run_of(*stopped, begun(), steps(2, 20, 10, 7), steps(3, 30, 9, 19), DONE)) == 29
    again = (begun(), steps(2, 18, 8, 5), DONE, begun(), steps(2, 20, 10, 4), steps(3, 24, 4, 9), DONE)
    assert seconds_of(run_of(*stopped, *again)) == 24
    assert seconds_of(run_of(*stopped, *again, begun(), DONE)) == 24, "nothing was left to train"
    killed = (begun(), steps(1, 10, 10, 12), steps(2, 20, 12, 30), inner(25, 36, train_wall="30"))
    assert seconds_of(run_of(*killed, begun(), steps(2, 20, 10, 9), steps(3, 30, 9, 19), DONE)) == 29


def test_hours_of_a_run_that_was_killed_within_an_epoch(run_of: Document) -> None:
    """After the last epoch's line come those of --log-interval, the first of which began within that epoch."""
    later = [inner(update, update + 6, train_wall="10") for update in (20, 30)]
    run = run_of(begun(), inner(10, 11, train_wall="10"), steps(1, 16, 17, 20), *later)
    assert seconds_of(run) == 17 + 4 + 10


def test_hours_of_a_run_that_was_begun_anew(run_of: Document) -> None:
    """Its checkpoints were removed, and its log was not; the new run has longer epochs."""
    earlier = [steps(epoch, 20 * epoch, 7, 8 * epoch) for epoch in range(1, 6)]
    run = run_of(begun(), *earlier, DONE, begun(), steps(1, 450, 300, 310), steps(2, 900, 310, 630), DONE)
    assert seconds_of(run) == 300 + 310


def test_hours_of_a_run_whose_processes_change(run_of: Document) -> None:
    """As with --elastic: each second counts for as many processes as there were."""
    run = run_of(begun(4), steps(1, 10, 10, 10), begun(2), steps(2, 30, 40, 41), DONE)
    assert seconds_of(run) == 4 * 10 + 2 * 40
    assert run["summary"]["trained_on"] == "4 and 2 CPU, fp32"
    within = run_of(begun(4), inner(10, 10), begun(2), inner(20, 30), steps(1, 20, 36, 30), DONE)
    assert seconds_of(within) == pytest.approx(36 * (4 * 10 + 2 * 30) / 40)


def test_hours_saved_of_the_first_run(tmp_path: Path, document: Document, printed: Callable[..., str]) -> None:
    gpu = {"gb_free": "70.1"}
    runs = [
        write(tmp_path / "deep.log", begun(2, "bf16"), steps(1, 10, 100, 110, **gpu), DONE),
        # The last start failed before its first update.
        write(tmp_path / "grown.log", begun(4, "bf16"), steps(1, 10, 30, 40, **gpu), DONE, begun(4)),
        write(tmp_path / "other.log", begun(2), steps(1, 10, 30, 40, **gpu), DONE),
        write(tmp_path / "cpu.log", begun(2, "bf16"), steps(1, 10, 30, 40), DONE),
        write(tmp_path / "running.log", begun(2, "bf16"), steps(1, 10, 30, 40, **gpu)),
    ]
    summaries = [run["summary"] for run in document("report", *runs)["runs"]]
    assert [summary["percent_saved"] for summary in summaries] == [None, 40, None, None, None]
    reasons = [summary["hours_not_comparable"] for summary in summaries]
    assert reasons[:2] == [None, None]
    for reason, word in zip(reasons[2:], ("fp32", "CPU", "ended"), strict=True):
        assert word in reason
    table = printed("report", *runs[:2], "--output", tmp_path / "page.html")
    rows = {row[0]: row[1:] for row in (re.split(r"  +", text.strip()) for text in table.splitlines())}
    assert rows["trained on"] == ["2 GPU, bf16", "4 GPU, bf16"]
    assert rows["percent saved"] == ["-", "40"]


def test_a_log_whose_lines_are_there_twice(run_of: Document) -> None:
    """As with ``fairseq-train --log-file train.log | tee -a train.log``, which may be some lines late."""
    lines = [
        begun(2),
        inner(10, 11, train_wall="10"),
        inner(20, 21, "nan", train_wall="10"),
        steps(1, 20, 20, 22),
        valid(20),
        inner(30, 33, train_wall="9"),
    ]
    once = run_of(*lines)
    assert seconds_of(once) == 2 * 29
    assert run_of(*(copy for text in lines for copy in (text, text))) == once
    assert run_of(*lines[:3], *lines[1:5], *lines[3:], lines[5]) == once


def test_two_lines_of_one_update(run_of: Document) -> None:
    assert seconds_of(run_of(begun(), inner(10, 11, train_wall="10"), inner(10, 12, train_wall="10"))) == 10
