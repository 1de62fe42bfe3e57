"""Logs of fairseq-train as text: every form of line, continued and damaged logs, configurations."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.reports.logged_config import options_of, parse_config
from fairseq_depthwise.reports.run_record import RunRecord
from fairseq_depthwise.reports.run_summary import summarize_run
from fairseq_depthwise.reports.training_log import parse_log, read_log

CONFIG = (
    "{'_name': None, 'common': {'_name': None, 'seed': 1, 'fp16': False}, 'dataset': {'valid_subset': 'valid,other'}, "
    "'model': {'_name': 'sdt_transformer', 'encoder_layers': 2, 'decoder_layers': 1}, 'task': {'_name': 'translation'}}"
)


def at(second: int, name: str, message: str) -> str:
    """A line of the log."""
    return f"2026-01-31 23:{57 + second // 60}:{second % 60:02d} | INFO | {name} | {message}\n"


def json_inner(update: int, second: int, loss: str = "5.0") -> str:
    wall = f'"num_updates": "{update}", "lr": "0.001", "wall": "{second}"'
    return at(second, "train_inner", f'{{"epoch": 1, "update": 0.1, "loss": "{loss}", "wps": "900.5", {wall}}}')


def json_valid(update: int, second: int, subset: str = "valid", loss: str = "4.5") -> str:
    values = {"loss": loss, "ppl": "22.6", "bleu": "3.5", "num_updates": str(update), "best_loss": loss}
    pairs = ", ".join(f'"{subset}_{name}": "{value}"' for name, value in values.items())
    return at(second, subset, f'{{"epoch": 1, {pairs}}}')


def begin(second: int) -> str:
    return at(second, "fairseq_cli.train", CONFIG)


def read(folder: Path, *lines: str) -> RunRecord:
    path = folder / "train.log"
    path.write_text("".join(lines), encoding="utf-8")
    return read_log(str(path))


def test_json_lines(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        begin(1),
        at(1, "fairseq_cli.train", "num. shared model params: 12,345 (num. trained: 12,345)"),
        "  warnings.warn('between lines')\n",
        json_inner(1, 3),
        json_inner(2, 4, "nan"),
        json_valid(2, 5),
        json_valid(2, 6, "other"),
        at(7, "train", '{"epoch": 1, "train_loss": "5", "train_train_wall": "3", "train_num_updates": "2"}'),
    )
    inner = run.series["train_inner"]["loss"]
    assert inner.updates == [1, 2]
    assert inner.seconds == [3, 4]  # fairseq's `wall`, which begins with the process's trainer
    assert inner.values[0] == 5
    assert math.isnan(inner.values[1])
    assert run.validation == "valid"
    assert set(run.series) == {"train_inner", "train", "valid", "other"}
    assert run.series["valid"]["bleu"].values == [3.5]
    assert run.series["valid"]["bleu"].seconds == [5]
    assert run.series["train"]["train_wall"].values == [3]
    assert run.parameters == 12345
    assert run.config["model"]["encoder_layers"] == 2
    assert run.notes == []


SIMPLE = "epoch 001:     10 / 50 loss=8.1, ppl=274.4, num_updates=10, lr=0.001, wall=4"
TQDM = "epoch 001:  20%|##   | 10/50 [00:01<00:04,  9.5it/s, loss=8.1, ppl=274.4, num_updates=10, lr=0.001, wall=4]"


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("2026-01-31 10:00:00 | INFO | train_inner | ", SIMPLE),
        ("[2026-01-31 10:00:00,123][train_inner][INFO] - ", SIMPLE),
        ("", SIMPLE),
        ("", TQDM),
        ("", "epoch 001:   0%|  | 9/50 [00:01<?]\r" + TQDM),
    ],
)
def test_lines_for_people(head: str, line: str, tmp_path: Path) -> None:
    run = read(
        tmp_path,
        f"{head}{line}\n",
        f"{head}epoch 001 | valid on 'valid' subset | loss 7.5 | ppl 181 | num_updates 10 | best_loss 7.5\n",
        f"{head}epoch 001 | loss 8.0 | wps 900 | num_updates 10 | wall 5\n",
    )
    assert run.series["train_inner"]["loss"].values == [8.1]
    assert run.series["train_inner"]["loss"].seconds == [4]
    assert run.series["valid"]["ppl"].values == [181]
    assert run.series["train"]["loss"].values == [8.0]
    assert "num_updates" not in run.series["train"]


def test_a_log_file_has_no_times_and_lines_several_times(tmp_path: Path) -> None:
    inner = '{"epoch": 1, "update": 0.1, "loss": "5", "num_updates": "7", "wall": "9"}\n'
    valid = '{"epoch": 1, "valid_loss": "4", "valid_num_updates": "7"}\n'
    run = read(tmp_path, CONFIG + "\n", inner, inner, valid, valid)
    assert run.series["train_inner"]["loss"].updates == [7]
    assert run.series["valid"]["loss"].seconds == [9]


def test_no_format_leaves_the_scores_of_checkpoints(tmp_path: Path) -> None:
    saved = "Saved checkpoint run/checkpoint_best.pt (epoch 1 @ 12 updates, score 4.09) (writing took 0.1 seconds)"
    run = read(tmp_path, begin(1), at(9, "fairseq.checkpoint_utils", saved))
    assert run.series["valid"]["loss"].values == [4.09]
    assert run.series["valid"]["loss"].seconds == [8]
    # With validations in the log they say it themselves.
    run = read(tmp_path, begin(1), json_valid(12, 8), at(9, "fairseq.checkpoint_utils", saved))
    assert run.series["valid"]["loss"].values == [4.5]


def test_a_continued_run_is_one_run(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        begin(1),
        json_inner(1, 3),
        json_inner(2, 4),
        json_valid(2, 5),
        json_inner(3, 6),
        json_inner(4, 7),
        '2026-01-31 23:57:07 | INFO | train_inner | {"epoch": 1, "upd',  # killed
        "\n",
        begin(60),
        at(61, "fairseq.trainer", "Loaded checkpoint run/checkpoint_last.pt (epoch 1 @ 2 updates)"),
        # The second process's clock begins again.
        *(json_inner(update, update + 60, "3").replace(f'"{update + 60}"', f'"{update - 1}"') for update in (3, 4, 5)),
    )
    inner = run.series["train_inner"]["loss"]
    assert inner.updates == [1, 2, 3, 4, 5]
    assert inner.values == [5, 5, 3, 3, 3]
    # Update 2 was over, and the validation behind it, after 5 s; the new process needed 2 s for its first update.
    assert inner.seconds == [3, 4, 7, 8, 9]
    assert run.continued_at == [2]
    assert "after update 2" in run.notes[0]


def test_a_process_whose_options_are_missing(tmp_path: Path) -> None:
    run = read(tmp_path, *(json_inner(update, update) for update in (1, 2, 3)), json_inner(2, 2, "4"))
    assert run.series["train_inner"]["loss"].updates == [1, 2]
    assert run.continued_at == [1]


def test_a_run_begun_anew(tmp_path: Path) -> None:
    run = read(tmp_path, begin(1), json_inner(1, 2), json_inner(2, 3), begin(60), json_inner(1, 62, "9"))
    assert run.series["train_inner"]["loss"].values == [9]
    assert len(run.notes) == 1


@pytest.mark.parametrize("cut", [SIMPLE[:-1], '{"epoch": 1, "loss": "5", "num_upd'])
def test_a_last_line_that_is_cut_off(cut: str, tmp_path: Path) -> None:
    run = read(tmp_path, SIMPLE.replace("10", "9", 1).replace("num_updates=10", "num_updates=9") + "\n", cut)
    assert run.series["train_inner"]["loss"].updates == [9]


def test_growth_is_recorded(tmp_path: Path) -> None:
    grew = "grew the encoder from 2 to 3 layers after 2 updates in 0.03 s; 694,335 parameters, learning rate 0.003"
    run = read(tmp_path, begin(1), json_inner(1, 2), json_inner(2, 3), at(4, "x", grew), json_inner(3, 5))
    assert run.grown == {2: "encoder from 2 to 3 layers"}
    assert run.parameters == 694335
    # Without that line, from the depth.
    lines = [
        f"epoch 001:  {n} / 9 loss=1, num_updates={n}, depth={depth}, wall={n}\n"
        for n, depth in ((1, 2), (2, 2), (3, 4))
    ]
    assert read(tmp_path, *lines).grown == {2: ""}


@pytest.mark.parametrize(
    "damaged",
    [
        '{"num_updates": "nan", "loss": "1"}',
        '{"num_updates": 1e999, "loss": "1"}',
        '{"num_updates": 11, "loss": 1' + "0" * 400 + "}",
        '{"a": ' + "[" * 100_000,
        "2026-99-99 99:99:99 | INFO | a | b",
        "num. model params: ,",
        f"Loaded checkpoint x @ {'9' * 5000} updates)",
        "{'common': 1, 'dataset': 'x', 'checkpoint': [2]}",
        "{'common': {}, 'model': {'_name': 5}, 'task': 3}",
    ],
    ids=lambda line: line[:20],
)
def test_damaged_lines_are_skipped(damaged: str, tmp_path: Path) -> None:
    run = read(tmp_path, f"{damaged}\n", SIMPLE + "\n", f"{damaged}\n")
    assert run.series["train_inner"]["loss"].values == [8.1]
    assert summarize_run(run).updates == 10
    assert all(isinstance(value, str) for value in options_of(run.config).values())


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([""], "is empty"),
        (["Hello\n", "a | b | c | d\n"], "is not a log"),
        (["\0\xff" * 50], "is not a log"),
        (['{"epoch": 1}\n', "[1]\n", '{"num_updates": 5, "epoch": 1}\n'], "is not a log"),
        (["Namespace(arch=1, \n"], "is not a log"),
        ([CONFIG + "\n"], "no loss"),
    ],
)
def test_files_without_a_training(lines: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}/train.log .*{named}"):
        read(tmp_path, *lines)


def test_configurations() -> None:
    config = parse_config(
        "{'_name': None, 'common': {'seed': 3, 'bf16': True}, 'criterion': 'c', 'optimization': {'lr': [0.1], "
        "'max_update': None}, 'model': Namespace(_name='a', x=-1, y=nan, z=[1, 2], f=print(1))}"
    )
    assert config["common"] == {"seed": 3, "bf16": True}
    assert options_of(config) == {
        "--arch": "a", "--x": "-1", "--y": "nan", "--z": "1,2", "--f": "print(1)", "--criterion": "c", "--seed": "3",
        "--bf16": "on", "--lr": "0.1",
    }  # fmt: skip
    assert options_of(parse_config("Namespace(arch='old', task='translation')"))["--arch"] == "old"
    assert parse_config("{'_name': None, 'common'") == {}
    assert parse_config("[1]") == {}


def test_processes_are_distinguished_by_their_options() -> None:
    processes = parse_log([begin(1), begin(2), json_inner(1, 3)])
    assert [len(process.readings) for process in processes] == [0, 1]
