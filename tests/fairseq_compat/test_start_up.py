"""What an interpreter that only starts pays for: the hook itself and nothing that the packages are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import fairseq_compat

RunPython = Callable[..., CompletedProcess[str]]


def test_starting_python_loads_the_hook_once_and_none_of_the_packages(run_python: RunPython) -> None:
    report = "import json, sys; print(json.dumps([sorted(sys.modules), [type(one).__name__ for one in sys.meta_path]]))"
    results = [run_python(f"{code}\n{report}") for code in ("", "import fairseq_compat; fairseq_compat.install()")]
    (loaded, finders), other = (json.loads(result.stdout) for result in results)
    assert finders.count("PatchingFinder") == 1
    assert {name for name in loaded if name.startswith("fairseq")} == {
        "fairseq_compat", "fairseq_compat.errors", "fairseq_compat.import_hook"
    }  # fmt: skip
    assert not {"torch", "numpy", "hydra", "omegaconf", "sacrebleu"}.intersection(loaded)
    assert other == [loaded, finders]


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
