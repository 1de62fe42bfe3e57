"""Cell, layers, connections and attention in a program without fairseq."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Refuses fairseq, imports modules and runs a program, and nothing else may have changed.
ALONE = """
import importlib, runpy, sys, torch
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli", "omegaconf", "hydra"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
before, load = list(sys.meta_path), torch.load
for name in sys.argv[3:]:
    importlib.import_module(name)
program, *sys.argv = sys.argv[1], *sys.argv[1:3]
runpy.run_path(program, run_name="__main__")
assert (sys.meta_path, torch.load, "fairseq_compat.patches" in sys.modules) == (before, load, False)
"""

#: What takes and returns tensors, as the contract in pyproject.toml has it.
OF_TENSORS = ["cell", "layers", "layer", "noise", "order", "attention", "similarity"]


@pytest.mark.long
def test_a_language_model_learns_without_fairseq() -> None:
    text = "the lazy cat sleeps and the dog barks. " * 20
    folders = ["modules/**/*.py", *(f"models/**/{name}.py" for name in OF_TENSORS)]
    files = [path.relative_to(ROOT) for one in folders for path in (ROOT / "fairseq_depthwise").glob(one)]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    assert len(names) > 25
    command = [sys.executable, "-c", ALONE, "examples/plain_pytorch/language_model.py", "20", *names]
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    first, *_, last = (float(line.split()[1]) for line in run.stdout.splitlines())
    assert last < first - 1


@pytest.mark.parametrize(
    "asked",
    [
        "fairseq_depthwise.SDTTransformer",
        "from fairseq_depthwise.checkpoints import sizes; sizes.family_of('sdt_transformer')",
        "from fairseq import utils; utils.import_user_module(argparse.Namespace(user_dir='fairseq_depthwise'))",
        "import fairseq_depthwise.evaluation.checkpoint_summary; from fairseq import options; "
        "options.get_training_parser()",
    ],
)
def test_all_is_registered_where_it_is_asked_for(asked: str) -> None:
    code = f"import argparse, fairseq_depthwise; {asked}; from fairseq import optim, tasks; "
    code += "assert 'fused_adam' in optim.OPTIMIZER_REGISTRY and 'translation_layer_growth' in tasks.TASK_REGISTRY"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)
