"""Several nodes, here on loopback: they train as one does, and SLURM says which is which."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from recipe_runs import SMALL_BATCH, Work, ended, kill, small
from train_system import find_machine, launcher, named_machine, printed_command

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.stages import parse_stages
from recipes import all_recipes, system_of

pytestmark = [pytest.mark.xdist_group("nodes"), pytest.mark.slow]

UPDATES = 24
OPTIONS = [
    *small(), "--depthwise-hidden-dim=32", "--dropout=0",
    f"--max-update={UPDATES}", "--save-interval-updates=4", "--validate-interval=1000", "--no-epoch-checkpoints",
    "--keep-interval-updates=2",
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start_nodes(work: Work) -> list[subprocess.Popen[str]]:
    """The same command on two nodes."""
    port = free_port()
    return [
        work.start(
            "train", "depthwise_lstm", *OPTIONS, **SMALL_BATCH, GPUS=0, NNODES=2, NODE_RANK=rank,
            MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )
        for rank in (0, 1)
    ]  # fmt: skip


def workers_of(pid: int) -> list[int]:
    """The training processes below a script: those that torchrun started."""
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        is_one = b"LOCAL_RANK=" in Path(f"/proc/{child}/environ").read_bytes()
        found += [child] if is_one else workers_of(child)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")
@pytest.mark.long
def test_two_nodes_that_are_killed_and_go_on_are_one(prepared: Callable[[str], Work], tmp_path: Path) -> None:
    """Of two torchrun agents on loopback one loses its process: both end, and go on as one node with two processes."""
    whole = prepared("multi30k")
    works = [Work("multi30k", tmp_path / name, dict(whole.environment)) for name in ("one", "two")]
    for work in works:
        work.folder.mkdir()
        (work.folder / "data-bin").symlink_to(whole.folder / "data-bin")
    works[0].train("depthwise_lstm", *OPTIONS, GPUS=0, PROCESSES=2, MASTER_PORT=free_port())

    works[1].environment["PYTHON"] = sys.executable  # whose processes are its own children
    saved = works[1].folder / "systems" / "depthwise_lstm" / "checkpoints"
    agents = start_nodes(works[1])
    try:
        end = time.monotonic() + 120
        while not list(saved.glob("checkpoint_*_*.pt")):
            assert time.monotonic() < end, "nothing was saved"
            assert all(agent.poll() is None for agent in agents), [ended(agent, None) for agent in agents]
            time.sleep(0.01)
        [victim] = workers_of(agents[1].pid)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        results = [ended(agent, status=None) for agent in agents]
        assert time.monotonic() - killed < 60
    finally:
        for agent in agents:
            if agent.poll() is None:
                kill(agent)
    assert all(result.returncode != 0 for result in results)
    assert "SIGKILL" in results[1].stderr
    assert 0 < checkpoints.updates_in(checkpoints.load_checkpoint(saved / "checkpoint_last.pt")) < UPDATES

    results = [ended(agent) for agent in start_nodes(works[1])]
    assert "Loaded checkpoint" in results[0].stdout + results[0].stderr
    folders = [work.folder / "systems" / "depthwise_lstm" for work in works]
    first, second = (checkpoints.load_checkpoint(folder / "checkpoints" / "checkpoint_last.pt") for folder in folders)
    assert checkpoints.updates_in(first) == checkpoints.updates_in(second) == UPDATES
    assert first["model"].keys() == second["model"].keys()
    for name, tensor in first["model"].items():
        # Adam turns the sign of a gradient near 0 into a step of full size, so sums in another order may show.
        torch.testing.assert_close(second["model"][name], tensor, rtol=1e-3, atol=1e-3)
    assert (folders[1] / "commands.sh").read_text().count("--nnodes 2 --node_rank 1") == 2


def test_slurm_says_which_node_this_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """train.sh asks scontrol for the first node; number and rank of this one come from SLURM's variables."""
    scripts = {
        "scontrol": 'test "$*" = "show hostnames node[07-09]" && printf "node07\\nnode08\\nnode09\\n"',
        # What the script hands on.
        "python": 'case "$*" in *train_system.py*) echo "$MASTER_ADDR $*" ;; esac',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_NNODES": "3", "SLURM_NODEID": "2", "SLURM_JOB_NODELIST": "node[07-09]"}
    work = Work(
        "multi30k", tmp_path / "work", {"PYTHON": str(tmp_path / "python"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    address, *rest = work.run("train", "sdt", "--max-epoch", 3, **slurm).stdout.split()
    assert rest[1:] == ["multi30k", "sdt", "--max-epoch", "3"]
    assert work.run("train", "sdt", **slurm, MASTER_ADDR="other").stdout.startswith("other ")
    assert address == "node07"

    by_slurm = find_machine({**slurm, "MASTER_ADDR": address, "GPUS": "0"})
    by_hand = find_machine({"NNODES": "3", "NODE_RANK": "2", "MASTER_ADDR": "node07", "GPUS": "0"})
    assert by_slurm == by_hand
    assert " ".join(launcher(by_slurm)[1:]) == (
        "-m torch.distributed.run --nproc_per_node 1 --nnodes 3 --node_rank 2 --master_addr node07 "
        "--master_port 29500 -m fairseq_depthwise train"
    )


@pytest.mark.parametrize(("status", "queued"), [(0, False), (138, True), (75, True), (143, False), (1, False)])
def test_a_slurm_job_goes_back_into_the_queue_once_it_has_saved(status: int, queued: bool, tmp_path: Path) -> None:
    scripts = {"srun": f'echo "$MAX_RESTARTS $NNODES $*"; exit {status}', "scontrol": 'echo "$*" > "$0.called"'}
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_NNODES": "4", "SLURM_JOB_ID": "17"}
    script = Path(__file__).parents[2] / "recipes/slurm/train.sh"
    result = subprocess.run(
        ["bash", script, "multi30k", "sdt"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == status
    assert result.stdout.startswith("10 1:4 ")
    assert result.stdout.endswith("recipes/train.sh multi30k sdt\n")
    called = tmp_path / "scontrol.called"
    assert (called.read_text() if called.exists() else "") == ("requeue 17\n" if queued else "")


@pytest.mark.parametrize(("nodes", "launched"), [("1:4", "--nodes 1:4"), ("4", "--nodes 4:4")])
def test_nodes_that_come_and_go_share_one_batch(nodes: str, launched: str) -> None:
    environment = {"GPUS": "2", "MASTER_ADDR": "node0", "MAX_TOKENS": "4096", "WORK": "work", "MAX_RESTARTS": "5"}
    command = printed_command(
        all_recipes()["wmt14_en_de"], "sdt_24l", system_of("wmt14_en_de", "sdt_24l"), {**environment, "NNODES": nodes}
    )
    words = shlex.join(command)
    assert f"train --elastic --processes 2 --max-restarts 5 {launched} --rendezvous node0:29500 " in words
    # For eight processes, as many tokens in each stage; nothing that fairseq finds out by itself.
    assert "--distributed-world-size" not in words
    stages = parse_stages(command[command.index("--growth-stages") + 1], strategy="top-most")
    plain = printed_command(
        all_recipes()["wmt14_en_de"], "sdt_24l", system_of("wmt14_en_de", "sdt_24l"),
        {**environment, "GPUS": "1", "NNODES": "1", "MAX_RESTARTS": ""},
    )  # fmt: skip
    alone = parse_stages(plain[plain.index("--growth-stages") + 1], strategy="top-most")
    for stage, other in zip(stages.stages, alone.stages, strict=True):
        assert None not in (stage.max_tokens, stage.update_freq, other.max_tokens, other.update_freq)
        assert stage.max_tokens * stage.update_freq == other.max_tokens * other.update_freq  # type: ignore[operator]  # not None: above
        assert stage.update_freq % 8 == 0  # type: ignore[operator]  # not None: above


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NNODES": "4:1"}, "NNODES=4:1 "),
        ({"NNODES": "2"}, "MASTER_ADDR"),
        ({"NNODES": "2", "NODE_RANK": "2", "MASTER_ADDR": "127.0.0.1"}, "NODE_RANK=2"),
    ],
)
def test_machines_that_cannot_be(environment: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        named_machine(environment, gpus=0)
