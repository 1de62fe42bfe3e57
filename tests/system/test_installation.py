"""Installing into a fresh environment: the start-up hook arrives with the packages and leaves with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
HOOK = "fairseq_compat.pth"
LINE = b"import fairseq_compat; fairseq_compat.install()\n"
PARTS = ("fairseq_compat", "fairseq_depthwise", HOOK, "setup.py", "pyproject.toml", "README.md", "LICENSE")


class Environment:
    """A virtual environment that holds nothing."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
        self.programs = folder / "bin"
        self.python = self.programs / "python"
        self.site = Path(self.run("-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())

    def run(self, *arguments: str) -> str:
        command = [self.python, *arguments]
        # -I: neither PYTHONPATH nor the working folder may stand in for what is installed.
        command.insert(1, "-I")
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def pip(self, *arguments: str | Path) -> None:
        """The pip of the tests' environment, working on this one, without the network."""
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def install(self, wheel: Path, *options: str) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-compile", *options, wheel)

    def files(self) -> set[str]:
        found = [path for top in (self.site, self.programs) for path in top.rglob("*") if path.is_file()]
        return {str(path) for path in found if "__pycache__" not in path.parts}

    def finders(self) -> list[str]:
        """The finders that a new interpreter starts with."""
        return self.run("-c", "import sys; print(*(type(one).__name__ for one in sys.meta_path))").split()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a distribution is built from: building leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("source")
    for name in PARTS:
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (PROJECT / name).exists():
            shutil.copy(PROJECT / name, folder / name)
    return folder


def built(source: Path, hook: str, folder: Path) -> Path:
    """Call a hook of the build backend (PEP 517 and 660), as pip does."""
    code = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], check=True, cwd=source, capture_output=True, timeout=120)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, "build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def editable_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, "build_editable", tmp_path_factory.mktemp("editable"))


def test_wheel_holds_both_packages_and_the_hook(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read(HOOK) == LINE
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"fairseq_compat", "fairseq_depthwise", HOOK}
    for package in ("fairseq_compat", "fairseq_depthwise"):
        written = {str(path.relative_to(PROJECT)) for path in (PROJECT / package).rglob("*.py")}
        assert written <= set(names)
        assert f"{package}/py.typed" in names


@pytest.mark.parametrize("kind", ["wheel", "editable_wheel"])
def test_installation_brings_the_hook_and_uninstallation_takes_it_away(
    kind: str, request: pytest.FixtureRequest, source: Path, tmp_path: Path
) -> None:
    fresh = Environment(tmp_path / "fresh")
    before = fresh.files()
    assert "PatchingFinder" not in fresh.finders()
    for _ in range(2):  # installed, and installed again over it
        fresh.install(request.getfixturevalue(kind), "--force-reinstall")
        assert (fresh.site / HOOK).read_bytes() == LINE
        assert fresh.finders().count("PatchingFinder") == 1
    assert (fresh.programs / "fairseq-depthwise").exists()
    found = Path(fresh.run("-c", "import fairseq_compat; print(fairseq_compat.__file__)").strip())
    assert found.parents[1] == (fresh.site if kind == "wheel" else source)
    fresh.pip("uninstall", "--yes", "fairseq-depthwise")
    assert fresh.files() == before
    assert "PatchingFinder" not in fresh.finders()


def test_trains_and_translates_without_the_repository(
    wheel: Path, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """Only the wheel in its place; fairseq, PyTorch and the others are those of the tests' environment."""
    fresh = Environment(tmp_path / "fresh")
    fresh.install(wheel)
    (fresh.site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (tmp_path / "elsewhere").mkdir()
    ours = "import fairseq_depthwise; print(fairseq_depthwise.__file__)"
    assert Path(fresh.run("-c", ours).strip().splitlines()[-1]).parent.parent == fresh.site

    def run(*arguments: object, given: str = "") -> str:
        command = [fresh.python, "-I", fresh.programs / "fairseq-depthwise", *map(str, arguments)]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=240, cwd=tmp_path / "elsewhere"
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    run(
        "train", copy_reverse_data, *tiny_model_options("depthwise_lstm_transformer"), "--share-all-embeddings",
        "--optimizer", "adam", "--lr", 0.01, "--max-tokens", 500, "--max-update", 2, "--cpu", "--save-dir", "made",
    )  # fmt: skip
    translations = run("translate", "made/checkpoint_last.pt", "--data", copy_reverse_data, given="w1 w2\n\nw3\n")
    assert len(translations.split("\n")) == 4
