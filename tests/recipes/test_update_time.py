"""The time that growing saves: updates at each depth, and their seconds, measured through the real program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sweep
import update_time
from plans import Plan, Run
from recipe_runs import SMALL_TEXT, Work, small

SMALL = " ".join([*small(16), "--max-tokens 400 --optimizer adam --lr-scheduler inverse_sqrt_restart --num-workers 0"])
PLAN = f'''
recipe = "multi30k"
primary = {{ system = "sdt-stages", base = "deep_blocks-4", metric = "sacrebleu", margin = 0.5 }}
tests = ["test_2016_flickr"]
updates = {{ grid = 4, final = 8 }}
seeds = [1]
beam = 2
lenpen = 1.0
warm_up = 0.2
options = "{SMALL} --log-format json --criterion label_smoothed_cross_entropy_with_auxiliary --label-smoothing 0.1"
[systems]
deep_blocks-4 = "--encoder-layers 4 --encoder-block-size 2"
sdt-stages = """
--task translation_layer_growth --encoder-block-size 2 --growth-strategy stack --growth-stages 2:{{seven_tenths}}u,4:u
"""
[grid]
dropout = [0.1]
lr = [0.01]
[beyond]
'''.replace(small(16)[0] + " " + small(16)[1] + " ", "")  # the systems say how deep their encoders are


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "stages.toml"
    path.write_text(PLAN)
    return Plan(path, tmp_path)


def test_updates_at_each_depth(tmp_path: Path) -> None:
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "train.en-de.en.idx").touch()
    plan = Plan(sweep.PLANS / "stages.toml", tmp_path)
    updates = {}
    for system in plan.systems:
        command = plan.command(Run(system, 1), {"lr": 0.01, "dropout": 0.1}, tmp_path, tmp_path, on_gpu=False)
        updates[system] = update_time.updates_by_depth(plan, command)
    assert updates == {
        "deep_blocks-24": {"24": 3000},
        "sdt-stages": {"6": 750, "12": 750, "18": 750, "24": 750},
        "sdt-late": {"6": 2100, "24": 900},
        "deep_blocks-6": {"6": 3000},
    }


def test_time_saved_by_hand() -> None:
    seconds = {"6": [1.0, 1.0, 2.0], "24": [4.0, 2.0, 4.0]}
    updates = {"deep": {"24": 100}, "late": {"6": 50, "24": 50}}
    tables = update_time.make_tables({"setup": {"base": "deep"}, "seconds": seconds, "updates": updates})
    assert tables["depths"].rows == [["6", "1.000 (1.000 to 2.000)"], ["24", "4.000 (2.000 to 4.000)"]]
    # Round by round 250 s of 400, 150 of 200 and 300 of 400.
    assert tables["saved"].rows[0][2:] == ["0.11", "", ""]
    assert tables["saved"].rows[1][2:] == ["0.07", "25.0% (25.0% to 37.5%)", ""]


@pytest.mark.xdist_group("recipes")
@pytest.mark.long
def test_depths_take_turns(prepared: Callable[[str], Work], plan: Plan, tmp_path: Path) -> None:
    work = prepared("multi30k")
    (tmp_path / "work").mkdir()
    subprocess.run(["cp", "-r", str(work.folder), str(tmp_path / "work" / "multi30k")], check=True)
    command = [sys.executable, str(Path(update_time.__file__)), str(tmp_path / "stages.toml"), "--updates", "10"]
    command += ["--rounds", "1", "--work", str(tmp_path / "work"), "--records", str(tmp_path)]
    environment = {**os.environ, **SMALL_TEXT, **work.environment, "PYTHON": sys.executable}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    record = json.loads((tmp_path / "update_time_stages.json").read_text())
    assert record["updates"] == {"deep_blocks-4": {"4": 8}, "sdt-stages": {"2": 5, "4": 3}}
    two, four = (record["seconds"][depth][0] for depth in ("2", "4"))
    assert two > 0
    saved = 1 - (5 * two + 3 * four) / (8 * four)
    assert float(re.findall(r"(-?[\d.]+)% \(", printed)[0]) == pytest.approx(100 * saved, abs=0.06)
