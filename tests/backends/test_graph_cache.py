"""The folder of kept graphs: made once and whole, and nobody else's."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import build_tiny

from fairseq_compat import UserError
from fairseq_depthwise.backends.graph_cache import VARIABLE, cached_folder
from fairseq_depthwise.models.base.model import StackModel


def keep(model: StackModel, about: object, make: Callable[[Path], None], say: Callable[[str], None] = print) -> Path:
    return cached_folder("graphs", [model], about, make, say)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path / "fairseq-depthwise" / "graphs"


def write(folder: Path) -> None:
    (folder / "part").write_bytes(b"graph")


def test_graphs_are_made_once_for_what_they_depend_on(cache: Path) -> None:
    model, said, made = build_tiny("sdt_transformer"), list[str](), list[Path]()

    def make(folder: Path) -> None:
        made.append(folder)
        write(folder)

    folder = keep(model, "about", make, said.append)
    assert (folder / "part").read_bytes() == b"graph"
    assert keep(model, "about", make, said.append) == folder
    assert len(made) == len(said) == 1
    others = {keep(model, "other", make, said.append)}
    next(model.parameters()).data[0, 0] += 1
    others.add(keep(model, "about", make, said.append))
    model.encoder.layers[0].feed_forward.activation = "gelu"
    others.add(keep(model, "about", make, said.append))
    assert len(others | {folder}) == len(made) == 4


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), UserError("no"), KeyboardInterrupt()], ids=repr)
def test_what_fails_leaves_nothing(error: BaseException, cache: Path) -> None:
    def make(folder: Path) -> None:
        write(folder)
        raise error

    with pytest.raises((UserError, KeyboardInterrupt), match=r"no|^$"):
        keep(build_tiny("sdt_transformer"), "about", make)
    assert list(cache.iterdir()) == []


def test_another_process_may_be_faster(cache: Path) -> None:
    model, others = build_tiny("sdt_transformer"), list[Path]()

    def make(folder: Path) -> None:
        write(folder)
        others.append(keep(model, "about", write))

    assert [keep(model, "about", make)] == others
    assert list(cache.iterdir()) == others


#: What is wrong with a cache that was used before: a folder (or file), and what happens to it.
HOSTILE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "others write above it": ("..", lambda path: path.chmod(0o777)),
    "a group writes in it": ("fairseq-depthwise", lambda path: path.chmod(0o770)),
    "others write in the folder of the kind": ("fairseq-depthwise/graphs", lambda path: path.chmod(0o777)),
    "others write in the folder of a model": ("fairseq-depthwise/graphs/*", lambda path: path.chmod(0o777)),
    "others may open the folder of a model": ("fairseq-depthwise/graphs/*", lambda path: path.chmod(0o755)),
    "a link to the folder of a model": (
        "fairseq-depthwise/graphs/*", lambda path: path.symlink_to(path.rename(f"{path}-moved"))
    ),
    "a link to what others write in": ("", lambda path: moved_behind_a_link(path).chmod(0o777)),
}  # fmt: skip


def moved_behind_a_link(path: Path) -> Path:
    path.symlink_to(moved := path.rename(f"{path}-moved"))
    return moved


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_cache_that_others_can_write_to_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it would be run."""
    cache, model = tmp_path / "above" / "cache", build_tiny("sdt_transformer")
    monkeypatch.setenv(VARIABLE, str(cache))
    before = os.umask(0o002)
    keep(model, "about", write)
    os.umask(before)
    assert keep(model, "about", write).stat().st_mode & 0o077 == 0
    place, change = HOSTILE[kind]
    (path,) = cache.glob(place) if "*" in place else [(cache / place).resolve()]
    change(path)
    with pytest.raises(UserError, match=str(tmp_path)):
        keep(model, "about", write)


def test_a_link_to_a_folder_of_ones_own_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").symlink_to(tmp_path / "large")
    folder = keep(build_tiny("sdt_transformer"), "about", write)
    assert folder.parent == tmp_path / "large" / "fairseq-depthwise" / "graphs"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("place", [".", "fairseq-depthwise/graphs", "fairseq-depthwise/graphs/*"])
def test_a_cache_of_another_user_is_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    model = build_tiny("sdt_transformer")
    keep(model, "about", write)
    (path,) = (tmp_path / "cache").glob(place) if "*" in place else [tmp_path / "cache" / place]
    os.chown(path, 65534, 65534)
    with pytest.raises(UserError, match=str(tmp_path)):
        keep(model, "about", write)
