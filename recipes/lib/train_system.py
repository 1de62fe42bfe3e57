"""Trains a system of a recipe on one CPU, several GPUs or several nodes.

    bash recipes/train.sh RECIPE SYSTEM [options of fairseq-train]
    bash recipes/train.sh RECIPE SYSTEM --print      the command for the machine that the environment names
    bash recipes/train.sh RECIPE --list              all systems, and what was published for them
    bash recipes/train.sh RECIPE --commands          the commands of all systems

The environment says where and how; recipes/README.md has all of it. Started again, a training resumes where it stopped.
Commands are printed without data and without a GPU.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from machine_batches import USUAL_SHARE, fit_batch, growth_stages, target_share
from recipe_step import languages_of, run_folder, run_step, safe_environment, say, whole_number
from systems import System

from fairseq_compat import UserError
from recipes import Recipe, all_recipes, system_of

#: Of the GPU that ``Training.max_tokens`` is for; one of that name has a little less than 80 GiB.
GPU_BYTES = 79e9

#: Of ``PRECISION``.
PRECISIONS = {"bf16": ("--bf16",), "fp16": ("--fp16",), "fp32": ()}


@dataclass(frozen=True)
class Machine:
    """Where a training runs.

    Attributes:
        gpus, processes: of this node, one process for each GPU; without any on its CPU.
        nodes, least_nodes, rank: how many at most and at least, and which of them this is.
        address, port: of the first node.
        max_restarts: how many times the processes are started again when one dies; None where that ends the training.
        precision: options of fairseq-train.
        memory: of the smallest GPU, by the 80 GB that ``Training.max_tokens`` is for; 1 on a CPU.
    """

    gpus: int
    processes: int
    nodes: int = 1
    rank: int = 0
    address: str = ""
    port: int = 29500
    least_nodes: int = 1
    max_restarts: int | None = None
    precision: tuple[str, ...] = ()
    memory: float = 1.0

    @property
    def world(self) -> int:
        """The most processes there may be."""
        return self.processes * self.nodes


def main() -> None:
    recipe_name, *arguments = sys.argv[1:]
    only_print = "--print" in arguments
    arguments = [argument for argument in arguments if argument != "--print"]
    if not arguments or arguments[0] in ("--list", "-l", "--help", "-h"):
        print(__doc__, list_systems(recipe_name), sep="\n", end="")
        return
    if arguments[0] == "--commands":
        print(all_commands(recipe_name, os.environ), end="")
        return
    name, *further = arguments
    recipe, system, environment = all_recipes()[recipe_name], system_of(recipe_name, name), os.environ
    if only_print:
        print(shlex.join([*printed_command(recipe, name, system, environment), *further]))
        return

    data = Path(environment["WORK"]) / "data-bin"
    if not data.is_dir():
        raise UserError(f"{data} does not exist; run bash recipes/{recipe_name}/prepare.sh first")
    machine = find_machine(environment)
    # Make sure that this is not a mistake.
    if machine.gpus == 0 and recipe.needs_gpu and environment.get("CPU") != "1":
        raise UserError(
            f"PyTorch can use no GPU here, and {system.arch} would train for days on a CPU; CPU=1 starts "
            "it all the same, and recipes/multi30k and recipes/tatoeba_de_en are made for CPUs"
        )
    folder = _folder_of_run(environment, name)
    command = [*training_command(recipe, system, folder, machine, environment), *further]
    _require_same_seed(folder, command)
    folder.mkdir(parents=True, exist_ok=True)
    # All commands that trained a system, in order.
    with (folder / "commands.sh").open("a", encoding="utf-8") as commands:
        commands.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')}\n{shlex.join(command)}\n")
    print(shlex.join(command), flush=True)
    # This process becomes the training, so that signals of SLURM reach it.
    os.execve(command[0], command, safe_environment())


def _folder_of_run(environment: Mapping[str, str], system: str) -> Path:
    """Return the folder of a training: that of its system and seed, or the one that ``RUN`` names.

    A training that evaluation must not find, such as the reverse direction, has a name of its own.
    """
    folder = run_folder(environment, system)
    run = environment.get("RUN")
    if not run:
        return folder
    if run in (".", "..") or "/" in run:
        raise UserError(f"RUN={run} is not the name of a folder in {folder.parent}, such as reverse")
    return folder.with_name(run)


def _require_same_seed(folder: Path, command: Sequence[str]) -> None:
    """Raise UserError if a folder has a training with another seed, which would be resumed instead."""
    commands = folder / "commands.sh"
    # Sharded checkpoints have a suffix.
    saved = [*(folder / "checkpoints").glob("checkpoint_last*.pt")]
    if not saved or not commands.exists():
        return
    earlier = _seed_of(shlex.split(commands.read_text(encoding="utf-8"), comments=True))
    seed = _seed_of(command)
    if earlier not in (None, seed):
        raise UserError(
            f"{folder} has a training with seed {earlier}, and this one has seed {seed}; give it another folder, such "
            f"as RUN={folder.name}-seed{seed}, or SEED={earlier} to resume"
        )


def _seed_of(words: Sequence[str]) -> str | None:
    """Return the seed of a command line, the last one if it has several; None if it has none."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--seed")
    seed: str | None = parser.parse_known_args(words)[0].seed
    return seed


def list_systems(recipe: str) -> str:
    """Return a line for each system of a recipe."""
    systems = {name: system_of(recipe, name) for name in all_recipes()[recipe].systems}
    width = max(map(len, systems))
    return "".join(f"  {name:{width}}  {_described(recipe, system)}\n" for name, system in systems.items())


def all_commands(recipe: str, environment: Mapping[str, str]) -> str:
    """Return the command of every system of a recipe, below a comment with its paper, its numbers and its baseline."""
    # RUN is the folder of one training.
    environment = {key: value for key, value in environment.items() if key != "RUN"}
    texts = []
    for name in all_recipes()[recipe].systems:
        system = system_of(recipe, name)
        command = shlex.join(printed_command(all_recipes()[recipe], name, system, environment))
        compared = f"# compared with {system.baseline}\n" if system.baseline else ""
        texts.append(f"# {name}: {_described(recipe, system)}\n{compared}{command}\n")
    return "\n".join(texts)


def _described(recipe: str, system: System) -> str:
    numbers = ", ".join(f"{score.name} {score.text}" for score in system.published.get(recipe, ()))
    return system.about + (f": {system.paper}, {numbers}" if numbers else "")


def printed_command(recipe: Recipe, name: str, system: System, environment: Mapping[str, str]) -> list[str]:
    """Return the command for a machine that need not be there: by default with one GPU, or none for small corpora."""
    machine = named_machine(environment, gpus=int(recipe.needs_gpu))
    return training_command(recipe, system, _folder_of_run(environment, name), machine, environment)


def find_machine(environment: Mapping[str, str]) -> Machine:
    """Return the machine that the environment names, by default all of this one."""
    import torch

    available = torch.cuda.device_count()
    machine = named_machine(environment, gpus=available)
    if machine.gpus > available:
        raise UserError(f"GPUS={machine.gpus}, and this machine has {available}")
    if machine.gpus == 0:
        return machine
    # All processes have the same --max-tokens, so the smallest GPU decides.
    memory = min(torch.cuda.get_device_properties(gpu).total_memory for gpu in range(machine.gpus)) / GPU_BYTES
    precision = machine.precision
    if not environment.get("PRECISION"):
        # Ampere (8.0) is the first with products in bf16.
        precision = PRECISIONS["bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"]
    # More memory does not make batches larger than the systems' max_tokens.
    return replace(machine, precision=precision, memory=min(memory, 1.0))


def named_machine(environment: Mapping[str, str], *, gpus: int) -> Machine:
    """Return the machine that the environment names, by default ``gpus`` GPUs of 80 GB in bf16."""
    number = partial(whole_number, environment)
    gpus = number("GPUS", gpus, lowest=0)
    least_nodes, nodes = _nodes(environment)
    rank = number("NODE_RANK", int(environment.get("SLURM_NODEID") or 0), lowest=0)
    if rank >= nodes:
        raise UserError(f"NODE_RANK={rank} is not below NNODES={nodes}; nodes are counted from 0")
    address = environment.get("MASTER_ADDR", "")
    if nodes > 1 and not address:
        raise UserError(f"NNODES={nodes} needs MASTER_ADDR, the name or address of the node with NODE_RANK=0")
    # Nodes that may be fewer later are elastic, too.
    is_elastic = environment.get("MAX_RESTARTS") or least_nodes < nodes
    restarts = number("MAX_RESTARTS", 3, lowest=0) if is_elastic else None
    bf16 = environment.get("BF16")
    if bf16 not in (None, "", "1"):
        raise UserError(f"BF16={bf16} is not 1, which selects bf16 on a CPU; PRECISION names any precision")
    usual = "bf16" if gpus or bf16 else "fp32"
    precision = environment.get("PRECISION") or usual
    if precision not in PRECISIONS:
        raise UserError(f"PRECISION={precision} is not one of {', '.join(PRECISIONS)}")
    return Machine(
        gpus=gpus,
        processes=gpus or number("PROCESSES", 1),
        nodes=nodes,
        rank=rank,
        address=address,
        port=number("MASTER_PORT", 29500),
        least_nodes=least_nodes,
        max_restarts=restarts,
        precision=PRECISIONS[precision],
    )


def _nodes(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the least and the most nodes: ``NNODES=4`` or ``NNODES=1:4``."""
    text = environment.get("NNODES") or environment.get("SLURM_NNODES") or "1"
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        raise UserError(f"NNODES={text} is neither a whole number of at least 1 nor a range such as 1:4")
    return least, most


def launcher(machine: Machine) -> list[str]:
    """Return the command before fairseq-train's options, which starts the processes.

    fairseq itself does so on one node, torchrun on several and for several processes on a CPU, ``train --elastic``
    where processes that die are started again.
    """
    # Elastic training restarts processes that die, and keeps the batch size when there are fewer.
    if machine.max_restarts is not None:
        command = [sys.executable, "-m", "fairseq_depthwise", "train", "--elastic"]
        command += ["--processes", str(machine.processes), "--max-restarts", str(machine.max_restarts)]
        if machine.nodes > 1:
            command += ["--nodes", f"{machine.least_nodes}:{machine.nodes}"]
            command += ["--rendezvous", f"{machine.address}:{machine.port}"]
        return command
    # On one node fairseq starts a process per GPU itself, but it never starts several on a CPU.
    if machine.nodes == 1 and (machine.gpus or machine.processes == 1):
        return [sys.executable, "-m", "fairseq_depthwise", "train"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(machine.processes)]
    if machine.nodes == 1:
        command += ["--standalone"]  # finds a free port, even beside other trainings
    else:
        command += ["--nnodes", str(machine.nodes), "--node_rank", str(machine.rank)]
        command += ["--master_addr", machine.address, "--master_port", str(machine.port)]
    return [*command, "-m", "fairseq_depthwise", "train"]


def training_command(
    recipe: Recipe, system: System, folder: Path, machine: Machine, environment: Mapping[str, str]
) -> list[str]:
    """Return the launcher and the options of fairseq-train."""
    training, data = system.training, Path(environment["WORK"]) / "data-bin"

    # The paper's batch on this machine.
    most = whole_number(environment, "MAX_TOKENS", int(training.max_tokens * machine.memory))
    tokens = _batch_tokens(recipe, system, data, most, environment)
    elastic = machine.max_restarts is not None
    size = fit_batch(tokens, machine.world, most, elastic=elastic)
    effective = size.max_tokens * size.update_freq * (1 if elastic else machine.world)
    say(f"an update has {effective:,} tokens on up to {machine.world} processes, {size.max_tokens:,} at a time on each")

    # The system as in its paper.
    options = [*launcher(machine), str(data), "--arch", system.arch, *system.options]
    options += [*training.dropout.options, *training.options]
    options += _task_options(recipe, system, data, environment)
    if system.stages:
        options += ["--growth-stages", growth_stages(system.stages, tokens, machine.world, most, elastic=elastic)]
    options += ["--max-tokens", str(size.max_tokens), "--update-freq", str(size.update_freq)]
    if training.updates:
        options += ["--max-update", str(training.updates)]

    # Text, files and logs.
    options += [*recipe.text_options(data), *training.save, "--save-dir", str(folder / "checkpoints")]
    options += ["--seed", environment.get("SEED") or "1", *machine.precision]
    # There may be another validation set, of another paper.
    options += ["--ignore-unused-valid-subsets", "--skip-invalid-size-inputs-valid-test"]
    options += ["--log-format", "json", "--log-interval", "100"]
    options += ["--log-file", str(folder / "train.log"), "--tensorboard-logdir", str(folder / "tensorboard")]

    # Devices and processes.
    if machine.gpus == 0:
        options += ["--cpu"]
    else:
        options += ["--num-workers", "4"]
        if machine.nodes == 1 and not elastic:
            options += ["--distributed-world-size", str(machine.gpus)]
    if machine.world > 1:
        # fairseq's own transformer has unused parameters, for whose gradients PyTorch's DDP would wait.
        options += ["--ddp-backend", "legacy_ddp"]
        if machine.gpus == 0:
            options += ["--distributed-backend", "gloo"]
    return options


def _batch_tokens(recipe: Recipe, system: System, data: Path, most: int, environment: Mapping[str, str]) -> int:
    """Return tokens of an update as ``--max-tokens`` counts them: padded ones of the longer side."""
    training = system.training
    if environment.get("BATCH_TOKENS") or not training.target_tokens:
        tokens = whole_number(environment, "BATCH_TOKENS", training.batch_tokens)
        if tokens != training.batch_tokens:
            say(f"BATCH_TOKENS={tokens}: the published setting is {training.batch_tokens:,} tokens")
        return tokens
    # If there are data, the share of target tokens is measured.
    source, target = _languages(recipe, data, environment)
    if (data / f"train.{source}-{target}.{target}.idx").exists():
        share, how = target_share(data, source, target, most), "measured"
    else:
        share, how = USUAL_SHARE, "as is usual; data would be measured"
    say(f"the paper's {training.batch_tokens:,} are target tokens, {share:.1%} of what --max-tokens counts ({how})")
    return math.ceil(training.batch_tokens / share)


def _languages(recipe: Recipe, data: Path, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return source and target language: of the data, or of the recipe where there are none."""
    if data.is_dir():
        return languages_of(data)
    source, target = recipe.languages
    return environment.get("SOURCE") or source, environment.get("TARGET") or target


def _task_options(recipe: Recipe, system: System, data: Path, environment: Mapping[str, str]) -> list[str]:
    if not recipe.many:
        source, target = _languages(recipe, data, environment)
        task = "translation_layer_growth" if system.stages else "translation"
        return ["--task", task, "--source-lang", source, "--target-lang", target]
    task = "translation_multi_simple_epoch" + ("_layer_growth" if system.stages else "")
    options = ["--task", task, "--lang-dict", str(data / "languages.txt"), "--lang-pairs", str(data / "pairs.txt")]
    # A token before the source names the target language (Zhang et al. 2020).
    options += ["--encoder-langtok", "tgt"]
    if environment.get("TEMPERATURE"):
        return [*options, "--sampling-method", "temperature", "--sampling-temperature", environment["TEMPERATURE"]]
    return [*options, "--sampling-method", "concat"]


if __name__ == "__main__":
    run_step(main)
