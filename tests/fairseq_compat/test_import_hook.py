"""The finder: it touches the listed modules of the supported release, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest

import fairseq_compat
from fairseq_compat import import_hook, versions
from fairseq_compat.import_hook import PatchingFinder, PatchingLoader


@pytest.fixture
def sample_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of our own that is listed as patched by ``sample_patch``, which records what it sees."""
    (tmp_path / "hooked_sample.py").write_text("value = 'from the file'\nseen = list(order)\n", encoding="utf-8")
    patch = ModuleType("fairseq_compat.patches.sample_patch")

    def adjust(module: ModuleType) -> Iterator[None]:
        module.order = ["before"]  # type: ignore[attr-defined]  # a module made here
        yield
        module.order.append("after")

    patch.adjust = adjust  # type: ignore[attr-defined]  # a module made here
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "fairseq_compat.patches.sample_patch", patch)
    monkeypatch.setitem(import_hook.PATCHES, "hooked_sample", ("sample_patch",))
    monkeypatch.setattr(import_hook, "applied", [])
    yield "hooked_sample"
    sys.modules.pop("hooked_sample", None)


def test_patch_runs_around_the_body_of_the_module(sample_module: str) -> None:
    module: Any = importlib.import_module(sample_module)
    assert module.value == "from the file"
    assert module.seen == ["before"]
    assert module.order == ["before", "after"]
    assert import_hook.applied == [(sample_module, "sample_patch")]


class FinderWithoutSearch:
    """As some old packages leave in ``sys.meta_path``."""


class AskingFinder:
    """Asks all other finders, ours among them, without a thought of who asks it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        return next((spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None), None)


@pytest.mark.parametrize("other", [FinderWithoutSearch(), AskingFinder()], ids=["no find_spec", "asks others"])
@pytest.mark.parametrize("place", [0, 1, -1], ids=["ahead", "next", "last"])
def test_finders_of_other_packages(sample_module: str, other: Any, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    finders = [finder for finder in sys.meta_path if not isinstance(finder, PatchingFinder)]
    finders.insert(0, PatchingFinder())
    finders.insert(len(finders) if place < 0 else place, other)
    # Python itself asks no finder that cannot answer.
    monkeypatch.setattr(sys, "meta_path", finders)
    spec = finders[0 if hasattr(finders[0], "find_spec") else 1].find_spec(sample_module)
    assert isinstance(spec.loader, PatchingLoader)
    assert not isinstance(spec.loader._loader, PatchingLoader)


def test_module_keeps_the_loader_and_the_source_that_were_found(sample_module: str) -> None:
    spec = importlib.util.find_spec(sample_module)
    assert spec is not None
    assert isinstance(spec.loader, PatchingLoader)
    assert "from the file" in (spec.loader.get_source(sample_module) or "")  # type: ignore[operator]  # what file loaders have
    assert Path(spec.loader.get_filename(sample_module)) == Path(spec.origin or "")  # type: ignore[operator]  # what file loaders have
    module = importlib.import_module(sample_module)
    assert not isinstance(module.__loader__, PatchingLoader)
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    for name, text in ((sample_module, "from the file"), ("fairseq.checkpoint_utils", "def save_checkpoint")):
        assert text in inspect.getsource(importlib.import_module(name))


def test_failing_body_leaves_no_module_and_is_not_called_applied(
    sample_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooked_sample.py").write_text("raise RuntimeError('from the body')\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="from the body"):
        importlib.import_module(sample_module)
    assert sample_module not in sys.modules
    assert import_hook.applied == []


def test_only_modules_of_fairseq_that_mention_something_are_patched() -> None:
    finder = PatchingFinder()
    for name in ("json", "hydra", "torch", "fairseq_compat", "fairseq_depthwise.cli", "fairseqx"):
        assert finder.find_spec(name) is None
    for name, patched in (("fairseq.data.id_dataset", False), ("fairseq.models.fconv", True), ("fairseq.pdb", False)):
        assert name not in import_hook.PATCHES
        spec = finder.find_spec(name, importlib.import_module(name.rpartition(".")[0]).__path__)
        assert spec is not None
        assert isinstance(spec.loader, PatchingLoader) == patched


def test_finders_of_before_python_3_4_are_passed_over(sample_module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [sys.meta_path[0], object(), *sys.meta_path[1:]])
    spec = PatchingFinder().find_spec(sample_module)
    assert spec is not None
    assert isinstance(spec.loader, PatchingLoader)


def test_listed_patches_have_the_last_word() -> None:
    """They are put around those for what a module mentions, so what they replace stays replaced."""
    from fairseq import checkpoint_utils
    from fairseq.distributed import utils

    assert checkpoint_utils.torch.load.__module__ == "fairseq_compat.patches.checkpoints.safe_loading"
    assert utils.torch.load.__module__ == "fairseq_compat.patches.training.broadcast_of_own_objects"


@pytest.mark.parametrize("found", ["0.10.2", "0.12.1", "1.0.0a0", None])
def test_other_release_of_fairseq_is_left_alone(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = PatchingFinder()
    folder = importlib.import_module("fairseq").__path__
    assert finder.find_spec("fairseq.checkpoint_utils", folder) is not None
    monkeypatch.setattr(versions, "installed_version", lambda name: found)
    finder = PatchingFinder()
    assert finder.find_spec("fairseq.checkpoint_utils", folder) is None
    assert finder.find_spec("hydra.conf", importlib.import_module("hydra").__path__) is not None


def test_missing_module_stays_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(import_hook.PATCHES, "fairseq.no_such_module", ("options.numpy_aliases",))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("fairseq.no_such_module")


def test_second_install_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, PatchingFinder)])
    for _ in range(2):
        fairseq_compat.install()
        assert [number for number, one in enumerate(sys.meta_path) if isinstance(one, PatchingFinder)] == [0]


def test_every_listed_patch_is_there_and_every_patch_is_listed() -> None:
    folder = Path(import_hook.__file__).parent / "patches"
    files = {f"{path.parent.name}.{path.stem}" for path in folder.glob("*/[a-z]*.py")}
    listed = {name for names in import_hook.PATCHES.values() for name in names} | set(import_hook.MENTIONED.values())
    assert listed == files
    assert all(importlib.util.find_spec(name) is not None for name in import_hook.PATCHES)
    for name in files:
        patch = importlib.import_module(f"fairseq_compat.patches.{name}")
        assert inspect.isgeneratorfunction(patch.adjust)


def test_listed_module_can_be_run_as_a_script(run_python: Callable[..., CompletedProcess[str]]) -> None:
    """``python -m fairseq_cli.preprocess`` gets its code from the loader instead of importing it."""
    result = run_python(
        "import runpy, sys; sys.argv = ['x', '-h']; runpy.run_module('fairseq_cli.preprocess', run_name='__main__')"
    )
    assert result.returncode == 0, result.stderr
    assert "usage:" in result.stdout
