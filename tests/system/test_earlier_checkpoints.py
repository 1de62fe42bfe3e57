"""Checkpoints of earlier versions decode to the same translations and go on training; old import paths work.

The scores of their translations are in ``tests/golden``.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from training_states import hypotheses, logged

from fairseq_compat import checkpoints

RunCommand = Callable[..., CompletedProcess[str]]

PLUGIN = Path(__file__).parents[2] / "fairseq_depthwise"
#: A folder for each system with its checkpoint after 150 updates, the command that trained it (``command.txt``, to be
#: run next to a link to the plugin) and ``expected.json``: translations of the test sentences, losses of four more
#: updates. Their data are in ``text`` and ``data-bin``.
EARLIER = Path(__file__).parents[1] / "earlier"
SYSTEMS = sorted(path.parent.name for path in EARLIER.glob("*/command.txt"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the checkpoints and their data."""
    return shutil.copytree(EARLIER, tmp_path / "earlier")


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_earlier_checkpoint_decodes_and_resumes(system: str, run_command: RunCommand, folder: Path) -> None:
    expected = json.loads((folder / system / "expected.json").read_text())
    texts = [line.split(" ", 1)[1] for line in expected["hypotheses"]]
    program, *command = (folder / system / "command.txt").read_text().split()
    path = f"{system}/checkpoint_last.pt"

    plugged = ["--user-dir", PLUGIN] if "--user-dir" in command else []
    command = [str(PLUGIN) if word == PLUGIN.name else word for word in command]
    generated = run_command(
        "fairseq-generate", "data-bin", *plugged, "--path", path, "--cpu", "--beam", 3, cwd=folder
    ).stdout
    found = hypotheses(generated)
    assert [found[number] for number in range(len(texts))] == texts

    resumed = run_command(program, *command, "--max-update", expected["max_update"], cwd=folder)
    losses = [update["loss"] for update in logged(resumed.stdout + resumed.stderr)]
    assert losses == pytest.approx(expected["losses"], rel=1e-3)
    updates = checkpoints.load_checkpoint(folder / path)["optimizer_history"][-1]["num_updates"]
    assert updates == expected["max_update"]


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("depthwise_lstm", "DepthwiseLSTMTransformer"),
        ("mute", "MuteTransformer"),
        ("sdt", "SDTTransformer"),
        ("linearized", "LinearizedTransformer"),
    ],
)
def test_models_are_imported_from_their_first_path(family: str, name: str) -> None:
    from fairseq.models import MODEL_REGISTRY

    module = importlib.import_module(f"fairseq_depthwise.models.{family}_transformer")
    assert getattr(module, name) is MODEL_REGISTRY[f"{family}_transformer"]
    assert hasattr(module, f"{name}Config")


def test_classes_are_imported_from_the_package() -> None:
    models = "DepthwiseLSTMTransformer, MuteTransformer, SDTTransformer"
    names = f"{models}, LoadedTranslator, TranslatorOptions, TextOptions, BeamOptions, Checkpoint"
    program = f"from fairseq_depthwise import {names}; print(*(known.__name__ for known in ({names})), sep=', ')"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines()[-1] == names
