"""Cell, layers, connections and attention in a program without fairseq."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A Python in which fairseq cannot be imported.
REFUSED = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli", "omegaconf", "hydra"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
"""

#: What takes and returns tensors, as the contract in pyproject.toml has it.
FREE = ("modules/**/*.py", "models/**/kernels/*.py", *(
    f"models/**/{name}.py" for name in ("cell", "layers", "layer", "noise", "order", "attention", "similarity")
))  # fmt: skip

#: Imports modules, and says whether anything else was changed by it.
IMPORTS = """
import importlib
before, stack, load = list(sys.meta_path), sys.path[:], __import__("torch").load
for name in sys.argv[1:]:
    importlib.import_module(name)
assert (sys.meta_path, sys.path, sys.modules["torch"].load) == (before, stack, load)
assert "fairseq_compat.patches" not in sys.modules
"""


def without_fairseq(code: str, *words: object, given: str = "") -> str:
    command = [sys.executable, "-c", REFUSED + code, *map(str, words)]
    run = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_modules_are_imported_without_fairseq_and_change_nothing() -> None:
    files = [path.relative_to(ROOT) for one in FREE for path in (ROOT / "fairseq_depthwise").glob(one)]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    assert len(names) > 25
    without_fairseq(IMPORTS, "fairseq_depthwise", *names)


@pytest.mark.parametrize(
    "asked",
    [
        "plugin.SDTTransformer",
        "from fairseq import utils; utils.import_user_module(argparse.Namespace(user_dir='fairseq_depthwise'))",
    ],
)
def test_all_is_registered_where_it_is_asked_for(asked: str) -> None:
    code = f"import argparse, sys, fairseq_depthwise as plugin; assert 'fairseq' not in sys.modules; {asked}; "
    code += "from fairseq import optim, tasks; assert 'translation_layer_growth' in tasks.TASK_REGISTRY; "
    code += "assert 'fused_adam' in optim.OPTIMIZER_REGISTRY"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


def test_a_language_model_learns() -> None:
    text = "the lazy cat sleeps and the dog barks. " * 20
    example = ROOT / "examples" / "plain_pytorch" / "language_model.py"
    run = "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    losses = [float(line.split()[1]) for line in without_fairseq(run, example, 20, given=text).splitlines()]
    assert len(losses) == 20
    assert losses[0] > 4
    assert losses[-1] < losses[0] - 1
