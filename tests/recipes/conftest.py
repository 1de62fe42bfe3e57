"""A mirror of all corpora on loopback, and a Python that starts at once, for the tests of whole recipes."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import corpus_mirror
import pytest
from forked_python import ForkedPython
from recipe_runs import Work

#: What the server was asked for since it started, over all tests of this process.
_requests: list[str] = []


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        _requests.append(self.path)


@pytest.fixture(scope="session")
def mirror_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mirror")


@pytest.fixture(scope="session")
def mirror_address(mirror_folder: Path) -> Iterator[str]:
    handler = functools.partial(_Handler, directory=str(mirror_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def requests_so_far() -> Callable[[], int]:
    """How often the mirror was asked for something."""
    return lambda: len(_requests)


@pytest.fixture(scope="session")
def texts() -> dict[str, corpus_mirror.Texts]:
    """The sets of texts there are: ``own`` always, ``real`` where CORPORA names real corpora."""
    there: dict[str, corpus_mirror.Texts] = {"own": corpus_mirror.OwnTexts()}
    if corpora := os.environ.get("CORPORA"):
        there["real"] = corpus_mirror.RealTexts(Path(corpora))
    return there


@pytest.fixture(scope="session")
def mirror_of(mirror_folder: Path, mirror_address: str, texts: dict[str, corpus_mirror.Texts]) -> Callable[..., str]:
    """``mirror_of(recipe, kind="own")``: the address of a mirror with a recipe's archives."""

    def made(recipe: str, kind: str = "own") -> str:
        folder = mirror_folder / kind / recipe
        if not folder.exists():
            corpus_mirror.build(folder, recipe, texts[kind])
        return f"{mirror_address}/{kind}/{recipe}"

    return made


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    server = ForkedPython()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def quick_work(
    forked_python: ForkedPython, mirror_of: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Work]:
    """``quick_work(recipe, kind="own")``: a new folder for a recipe, whose scripts start Python as forks."""

    def made(recipe: str, kind: str = "own", **environment: str) -> Work:
        given = {
            "PYTHON": str(forked_python.python), "MIRROR": mirror_of(recipe, kind), "IGNORE_CHECKSUMS": "1",
            **environment,
        }  # fmt: skip
        return Work(recipe, tmp_path_factory.mktemp(recipe) / "work", given)

    return made
