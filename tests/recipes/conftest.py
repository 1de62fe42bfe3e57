"""A mirror of all corpora on loopback, for the tests of whole recipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import corpus_mirror
import pytest
from mirror_server import MirrorServer
from recipe_runs import Work


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirrorServer]:
    """A web server with ``KIND/RECIPE/ARCHIVE``; ``mirror_of`` fills it."""
    with MirrorServer(tmp_path_factory.mktemp("mirror")) as server:
        yield server


@pytest.fixture(scope="session")
def mirror_of(mirror: MirrorServer) -> Callable[..., str]:
    """``mirror_of(recipe)``: the address of a mirror with a recipe's archives."""

    def made(recipe: str) -> str:
        folder = mirror.folder / recipe
        if not folder.exists():
            corpus_mirror.build(folder, recipe)
        return f"{mirror.url}/{recipe}"

    return made


@pytest.fixture(scope="session")
def new_work(
    request: pytest.FixtureRequest, mirror_of: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Work]:
    """``new_work(recipe, forked=True, **environment)``: a recipe and a new folder for it.

    With ``forked`` its scripts start Python as forks; without it is the real interpreter.
    """

    def made(recipe: str, *, forked: bool = True, **environment: str) -> Work:
        python = request.getfixturevalue("forked_python").python if forked else sys.executable
        given = {"PYTHON": str(python), "MIRROR": mirror_of(recipe), "IGNORE_CHECKSUMS": "1"}
        if recipe == "opus100":
            given["LANGUAGES"] = " ".join(corpus_mirror.OPUS_LANGUAGES)
        if recipe == "wmt18_zh_en":
            given["VOCABULARY"] = "400"  # it has more characters
        if recipe == "nist_zh_en":
            given["LDC"] = str(request.getfixturevalue("mirror").folder / recipe)
        if recipe == "wmt15_cs_en":
            given["THRESHOLD"] = "2"
        given |= environment
        return Work(recipe, tmp_path_factory.mktemp(recipe) / "work", given)

    return made


@pytest.fixture(scope="session")
def prepared(new_work: Callable[..., Work]) -> Callable[[str], Work]:
    """``prepared(recipe)``: the recipe's folder with data of our own texts, the same for all tests of a process."""
    found: dict[str, Work] = {}

    def made(recipe: str) -> Work:
        if recipe not in found:
            found[recipe] = new_work(recipe)
            found[recipe].run("prepare")
        return found[recipe]

    return made
