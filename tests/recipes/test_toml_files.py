"""Tables of TOML files: what nothing reads, what is missing, and values of another type are refused by name."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import systems
from toml_files import between, read_table

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
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        read_table(Outer, TABLE | changes, "file")


def test_recipes_of_misspelled_keys() -> None:
    table = {"systems": ["small"], "metrics": ["chrf"], "languages": ["en", "de"]}
    assert recipes._recipe("hops", table | {"beam": 3}).beam == 3
    with pytest.raises(UserError, match="beem"):
        recipes._recipe("hops", table | {"beem": 3})


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
    ],
)
def test_systems_of_misspelled_keys(
    right: str, wrong: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(systems.FOLDER / "small.toml", tmp_path)
    text = (tmp_path / "small.toml").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "small.toml").write_text(text.replace(right, wrong, 1), encoding="utf-8")
    monkeypatch.setattr(systems, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=named):
        systems.read_systems("small", "hops", recipes.RECIPES)
