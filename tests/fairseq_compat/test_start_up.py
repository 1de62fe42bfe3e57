"""What an interpreter that only starts pays for: the hook itself and nothing that the packages are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import fairseq_compat

RunPython = Callable[..., CompletedProcess[str]]


def modules_at_start(run_python: RunPython, code: str = "") -> set[str]:
    result = run_python(f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))")
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def test_starting_python_loads_the_hook_and_none_of_the_packages(run_python: RunPython) -> None:
    loaded = modules_at_start(run_python)
    assert "fairseq_compat.import_hook" in loaded
    heavy = ("torch", "fairseq", "fairseq_cli", "fairseq_depthwise", "numpy", "hydra", "omegaconf", "sacrebleu")
    assert not loaded.intersection(heavy)


def test_hook_consists_of_three_small_modules(run_python: RunPython) -> None:
    assert {name for name in modules_at_start(run_python) if name.startswith("fairseq")} == {
        "fairseq_compat", "fairseq_compat.errors", "fairseq_compat.import_hook"
    }  # fmt: skip


def test_importing_the_package_alone_loads_no_more(run_python: RunPython) -> None:
    assert modules_at_start(run_python, "import fairseq_compat; fairseq_compat.install()") == modules_at_start(
        run_python
    )


def test_hook_stands_first_and_once(run_python: RunPython) -> None:
    result = run_python("import sys; print([type(one).__name__ for one in sys.meta_path].count('PatchingFinder'))")
    assert result.stdout.strip() == "1"


def test_hook_file_is_one_line_that_python_executes() -> None:
    source = Path(fairseq_compat.__file__).parent.parent / "fairseq_compat.pth"
    text = source.read_bytes()
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    assert text.startswith(b"import ")  # site executes exactly the lines that begin so


def test_broken_package_does_not_keep_python_from_starting(run_python: RunPython, tmp_path: Path) -> None:
    """A failing line of a .pth file is reported and passed over; the interpreter still runs."""
    (tmp_path / "fairseq_compat.py").write_text("raise RuntimeError('half an upgrade')\n", encoding="utf-8")
    result = run_python("print('started')", env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 0
    assert result.stdout.strip() == "started"
