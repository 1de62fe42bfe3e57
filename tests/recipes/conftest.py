"""Folders for the tests of whole recipes, and mirrors of the corpora."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import corpus_mirror
import pytest
from recipe_runs import Work


@pytest.fixture(scope="session")
def mirror_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``mirror_of(recipe)``: a folder with a recipe's archives."""

    @cache
    def made(recipe: str) -> Path:
        return corpus_mirror.build(tmp_path_factory.mktemp("mirror") / recipe, recipe)

    return made


@pytest.fixture(scope="session")
def new_work(
    request: pytest.FixtureRequest, mirror_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Work]:
    """``new_work(recipe, forked=True, **environment)``: a recipe and a new folder for it.

    With ``forked`` its scripts start Python as forks; without it is the real interpreter.
    """

    def made(recipe: str, *, forked: bool = True, **environment: str) -> Work:
        python = request.getfixturevalue("forked_python").python if forked else sys.executable
        given = {"PYTHON": str(python), "IGNORE_CHECKSUMS": "1"}
        if recipe != "hops":  # which downloads nothing
            given["MIRROR"] = str(mirror_of(recipe))
        if recipe == "opus100":
            given["LANGUAGES"] = " ".join(corpus_mirror.OPUS_LANGUAGES)
        if recipe == "wmt18_zh_en":
            given["VOCABULARY"] = "400"  # it has more characters
        if recipe == "nist_zh_en":
            given["LDC"] = given["MIRROR"]
        if recipe == "wmt15_cs_en":
            given["THRESHOLD"] = "2"
        given |= environment
        return Work(recipe, tmp_path_factory.mktemp(recipe) / "work", given)

    return made


@pytest.fixture(scope="session")
def prepared(new_work: Callable[..., Work]) -> Callable[[str], Work]:
    """``prepared(recipe)``: the recipe's folder with data of our own texts, the same for all tests of a process."""

    @cache
    def made(recipe: str) -> Work:
        work = new_work(recipe)
        work.run("prepare")
        return work

    return made
