"""Tables of TOML files: what nothing reads, what is missing, and values of another type are refused by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import systems
from toml_files import between, entries, read_table

import recipes
from fairseq_compat import UserError


@dataclass(frozen=True)
class Inner:
    share: float = field(metadata=between(0, 1))
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner
    lists: dict[str, list[float]]
    tables: list[Inner] = field(default_factory=list)
    pairs: list[list[int]] = field(default_factory=list, metadata=entries(1, 2))


#: A system in the file.
DEEP = "[systems.deep]\n"
RECIPE: dict[str, Any] = {"systems": ["small"], "metrics": ["chrf"], "languages": ["en", "de"]}
ALL = [*recipes.all_recipes()]
TABLE: dict[str, Any] = {"count": 3, "inner": {"share": 1}, "lists": {"a": [1, 2.5]}, "tables": [{"share": 0.5}]}


def test_values_have_their_types() -> None:
    table = read_table(Outer, TABLE, "file")
    assert table == Outer(3, Inner(1.0), {"a": [1.0, 2.5]}, [Inner(0.5)])
    assert isinstance(table.lists["a"][0], float)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cuont": 3}, "cuont"),
        ({"count": 3.0}, "count"),
        ({"count": True}, "count"),
        ({"inner": {}}, "share"),
        ({"inner": {"share": 1.5}}, "share"),
        ({"inner": {"share": float("nan")}}, "share"),
        ({"inner": {"share": 1, "name": 2}}, "name"),
        ({"inner": []}, "inner"),
        ({"lists": {"a": []}}, "lists.a"),
        ({"lists": {"a": ["x"]}}, "lists.a"),
        ({"lists": [1]}, "lists"),
        ({"tables": [{"share": 0, "nmae": "x"}]}, "nmae"),
        ({"pairs": [[1, 2], [1, 2, 3]]}, "pairs"),
        ({"pairs": [[]]}, "pairs"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        read_table(Outer, TABLE | changes, "file")


def test_recipes_of_misspelled_keys() -> None:
    assert recipes._recipe("hops", RECIPE | {"beam": 3}, ALL).beam == 3
    with pytest.raises(UserError, match="beem"):
        recipes._recipe("hops", RECIPE | {"beem": 3}, ALL)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"languages": "en"}, "languages"),
        ({"languages": ["en"]}, "languages"),
        ({"subwords": ["--bpe-codes"]}, "subwords"),
        ({"needs_gpu": "false"}, "needs_gpu"),
        ({"systems": "small"}, "systems"),
        ({"names": ["nix"]}, "names.*nix"),
    ],
)
def test_recipes_of_wrong_values(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=f"recipes.toml, hops.*{word}"):
        recipes._recipe("hops", RECIPE | changes, ALL)


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("[systems.transformer]\n", "[systems.transformer]\noption = '--x'\n", "option"),
        ("[systems.transformer]\n", "[systems.transformer]\npublished.nix = []\n", "nix"),
        ("[systems.transformer]\n", "[systems.transformer]\nfor_recipe.hops.stage = []\n", "stage"),
        ("[trainings.standard]\n", "[trainings.standard]\nbatch_token = 1\n", "batch_token"),
        ("[trainings.less_dropout]\n", "[trainings.less_dropout]\nin_recipe.nix.updates = 1\n", "nix"),
        ("[trainings.less_dropout]\n", "[trainings.less_dropout]\nin_recipe.hops.update = 1\n", "update"),
        ("[sizes.hops]\n", "[sizes.hops]\nwidht = 1\n", "widht"),
        ("[parts]\n", "[part]\n[parts]\n", "part"),
        ('rate = "{rate}"', 'rate = "fast"', "rate"),
        (DEEP, DEEP + 'differs = { positons = "x" }\n', "systems.deep.*positons"),
        (DEEP, DEEP + "stages = [[4, 3, 2], [6]]\n", "systems.deep.*stages"),
        (DEEP, DEEP + "stages = [[]]\n", "systems.deep.*stages"),
        (DEEP, DEEP + "stages = [[4, 3], [6]]\nstages_in_updates = [[4, 3], [6]]\n", "systems.deep.*stages_in_updates"),
        (DEEP, DEEP + 'published.hops = [["blue", "3.1", "Table 1"]]\n', "systems.deep.*published.hops.*blue"),
        (DEEP, DEEP + 'published.hops = [["accuracy", "3.1"]]\n', "systems.deep.*published.hops"),
        (DEEP, DEEP + 'published.hops = [["accuracy", "high", "Table 1"]]\n', "systems.deep.*published.hops"),
        ('baseline = "deep"\n', 'baseline = "deep_blocks"\n', "baseline"),
        ('baseline = "deep"\n', 'baseline = "sdt"\n', "baseline"),
        ('baseline = "deep"\n', 'baseline = "nix"\n', "systems.deep_blocks.*baseline.*nix"),
        ("save_every = 200\n", "save_every = 200\nkeep_epochs = 5\n", "keep_epochs"),
        ("save_every = 200\n", "", "keep"),
        ('dropout = ["{dropout}", 0, 0]', 'dropout = ["{dropout}", 0]', "dropout"),
        ('training = "standard"\n', 'training = "nix"\n', "systems.transformer.*nix"),
        ('training = "standard"\n', "", "systems.transformer.*training"),
        ('like = "standard"\n', 'like = "less_dropout"\n', "trainings.less_dropout"),
        ('like = "standard"\n', 'like = "nix"\n', "trainings.less_dropout.*nix"),
        ('like = "multi30k"\nwidth = 64\n', 'like = "hops"\nwidth = 64\n', "sizes"),
        ("{pre_norm} {shallow}", "{pre_nrm} {shallow}", "systems.transformer.options.*pre_nrm"),
        ("{pre_norm} {shallow}", "{ {shallow}", "systems.transformer.options"),
        ("{pre_norm} {shallow}", "'{shallow}", "systems.transformer.*options"),
        ("{decoder}", "{shape_}", "parts.*shape_"),
        (DEEP, DEEP + "for_recipe.hops = 3\n", "systems.deep"),
        ("fairseq's", "fairseq\udce9s", "UTF-8"),
    ],
)
def test_mistakes_in_systems_name_file_and_place(
    right: str, wrong: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(systems.FOLDER / "small.toml", tmp_path)
    text = (tmp_path / "small.toml").read_text(encoding="utf-8")
    assert right in text
    changed = text.replace(right, wrong, 1).encode(errors="surrogateescape")
    (tmp_path / "small.toml").write_bytes(changed)
    for module in (systems, recipes):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=f"small.toml.*{named}"):
        recipes._recipe("hops", RECIPE | {"metrics": ["accuracy"]}, ALL)


def test_a_mistake_ends_a_command_with_one_sentence(tmp_path: Path) -> None:
    """The files are read by the command and not on import."""
    shutil.copytree(recipes.PATH.parent, tmp_path / "recipes")
    path = tmp_path / "recipes" / "recipes.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("beam = 5", "beem = 5", 1), encoding="utf-8")
    command = [sys.executable, str(tmp_path / "recipes" / "lib" / "train_system.py"), "multi30k", "--list"]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "WORK": str(tmp_path)})
    assert ended.returncode == 1
    assert "beem" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
