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


def output_of(*command: object, folder: Path | None = None, given: str = "") -> str:
    """Run a command that must end well."""
    done = subprocess.run(
        list(map(str, command)), input=given, capture_output=True, text=True, timeout=240, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


class Environment:
    """A virtual environment that holds nothing."""

    def __init__(self, folder: Path) -> None:
        output_of(sys.executable, "-m", "venv", "--without-pip", folder)
        self.programs = folder / "bin"
        self.site = Path(self.python("import sysconfig; print(sysconfig.get_paths()['purelib'])"))

    def python(self, code: str) -> str:
        """Run code; neither PYTHONPATH nor the working folder may stand in for what is installed."""
        return output_of(self.programs / "python", "-I", "-c", code).strip()

    def pip(self, *arguments: object) -> None:
        """The pip of the tests' environment, working on this one, without the network."""
        output_of(sys.executable, "-m", "pip", "--python", self.programs / "python", *arguments)

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-compile", "--force-reinstall", wheel)

    def files(self) -> set[str]:
        found = [path for top in (self.site, self.programs) for path in top.rglob("*") if path.is_file()]
        return {str(path) for path in found if "__pycache__" not in path.parts}

    def hooks(self) -> int:
        """How many of our finders a new interpreter starts with."""
        return self.python("import sys; print(*(type(one).__name__ for one in sys.meta_path))").count("PatchingFinder")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build backend (PEP 517) makes of a copy of the sources, beside which it leaves files."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(PROJECT / name, source / name)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    output_of(sys.executable, "-c", code, folder, folder=source)
    (made,) = folder.iterdir()
    return made


def test_wheel_holds_both_packages_and_the_hook(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read(HOOK) == LINE
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {*PARTS[:2], HOOK}
    for package in PARTS[:2]:
        written = {str(path.relative_to(PROJECT)) for path in (PROJECT / package).rglob("*.py")}
        assert {*written, f"{package}/py.typed"} <= set(names)


@pytest.mark.long
def test_installed_used_and_uninstalled(
    wheel: Path, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """The wheel trains and translates without the repository; all but it is of the tests' environment."""
    fresh = Environment(tmp_path / "fresh")
    before = fresh.files()
    assert fresh.hooks() == 0
    for _ in range(2):  # installed, and installed again over it
        fresh.install(wheel)
        assert (fresh.site / HOOK).read_bytes() == LINE
        assert fresh.hooks() == 1
    (fresh.site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    command = [fresh.programs / "python", "-I", fresh.programs / "fairseq-depthwise"]
    output_of(
        *command, "train", copy_reverse_data, *tiny_model_options("depthwise_lstm_transformer"), "--optimizer",
        "adam", "--lr", 0.01, "--max-tokens", 500, "--max-update", 2, "--cpu", "--save-dir", "made", folder=tmp_path,
    )  # fmt: skip
    translate = [*command, "translate", "made/checkpoint_last.pt", "--data", copy_reverse_data]
    assert output_of(*translate, folder=tmp_path, given="w1 w2\n\nw3\n").count("\n") == 3
    (fresh.site / "others.pth").unlink()
    fresh.pip("uninstall", "--yes", "fairseq-depthwise")
    assert fresh.files() == before
    assert fresh.hooks() == 0
