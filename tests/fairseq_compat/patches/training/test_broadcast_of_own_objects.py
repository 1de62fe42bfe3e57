"""Rank 0 sends the others its Python objects; the two processes here are forked from one small script."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from omegaconf import OmegaConf

SCRIPT = """
import argparse, os, sys
import torch
from omegaconf import OmegaConf
from fairseq.distributed import utils

rank = 0 if os.fork() else 1
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
sent = {
    "cfg": OmegaConf.create({"model": {"layers": 3}}),
    "args": argparse.Namespace(arch="transformer"),
    "model": {"weight": torch.arange(3.0)},
}
got = utils.broadcast_object(sent if rank == 0 else None, src_rank=0, group=torch.distributed.group.WORLD)
if rank == 1:
    print(got["cfg"].model.layers, got["args"].arch, got["model"]["weight"].tolist(), flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_other_ranks_get_configuration_options_and_tensors(
    run_python: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    result = run_python(SCRIPT, tmp_path / "meeting-point", env={"GLOO_SOCKET_IFNAME": "lo"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "3 transformer [0.0, 1.0, 2.0]"


def test_what_the_others_get_is_loaded_here_and_refused_by_torch() -> None:
    from fairseq.distributed import utils

    buffer = io.BytesIO()
    torch.save(OmegaConf.create({"layers": 3}), buffer)
    buffer.seek(0)
    assert utils.torch.load(buffer, map_location="cpu").layers == 3
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(buffer, map_location="cpu", weights_only=True)
    assert utils.torch.load is not torch.load
