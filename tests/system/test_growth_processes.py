"""Growing on several processes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_compat import checkpoints

RunCommand = Callable[..., subprocess.CompletedProcess[str]]

OPTIONS = [
    "--task", "translation_layer_growth", "--arch", "sdt_transformer", "--encoder-block-size", "1",
    *(f"--{side}-{size}" for side in ("encoder", "decoder")
      for size in ("embed-dim=32", "attention-heads=2", "ffn-embed-dim=64")),
    "--decoder-layers", "1", "--share-all-embeddings", "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler",
    "inverse_sqrt_restart", "--warmup-updates", "2", "--criterion", "label_smoothed_cross_entropy", "--dropout", "0",
    "--attention-dropout", "0", "--activation-dropout", "0", "--cpu", "--no-progress-bar", "--no-epoch-checkpoints",
]  # fmt: skip
STAGES = ["--growth-stages", "1:3u,2:3u,3:3u", "--growth-optimizer-state", "keep"]
TWO_PROCESSES = ["torchrun", "--standalone", "--nproc_per_node", 2, "-m", "fairseq_depthwise", "train"]
GLOO = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]


@pytest.mark.xdist_group("processes")
def test_two_processes_grow_like_one_also_after_a_resume(
    run_command: RunCommand, copy_reverse_data: Path, tmp_path: Path
) -> None:
    """Two processes with one batch each are one with two, through two borders and a stop at the first.

    What is drawn anew is the same in both, and what is frozen is passed over by both.
    """
    batches = ["--batch-size", 20, *STAGES, "--growth-init", "random", "--growth-freeze", "copied"]
    run_command(
        "fairseq-depthwise", "train", copy_reverse_data, *OPTIONS, *batches, "--update-freq", 2, "--save-dir",
        tmp_path / "one",
    )  # fmt: skip
    logs = [
        run_command(
            *TWO_PROCESSES, copy_reverse_data, *OPTIONS, *batches, *GLOO, "--max-update", end, "--save-dir",
            tmp_path / "two",
        ).stdout
        for end in (3, 9)
    ]  # fmt: skip
    assert "grew" not in logs[0]
    assert len(re.findall("grew the encoder from", logs[1])) >= 2
    one, two = (checkpoints.load_checkpoint(tmp_path / run / "checkpoint_last.pt")["model"] for run in ("one", "two"))
    assert one.keys() == two.keys()
    assert any(name.startswith("encoder.layers.2.") for name in one)
    for name, tensor in one.items():
        # Adam turns the sign of a gradient near 0 into a step of full size, so sums in another order may show.
        torch.testing.assert_close(
            two[name], tensor, rtol=1e-3, atol=3e-4, msg=lambda text, name=name: f"{name} {text}"
        )
