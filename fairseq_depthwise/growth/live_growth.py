"""Grows the model of a running fairseq trainer, in one process or many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from fairseq.trainer import Trainer
from omegaconf import open_dict
from torch import nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.freezing import LastGrowth
from fairseq_depthwise.growth.optimizer_moments import give_moments, moments_of
from fairseq_depthwise.growth.parameter_map import SourcesOfSides, grow_model
from fairseq_depthwise.optim.restarting_schedule import RestartingSchedule

#: The logger of fairseq-train: --log-file does not get the lines of any other.
logger = logging.getLogger("fairseq_cli.train")


def require_growable_trainer(trainer: Trainer, keep_moments: bool) -> None:
    """Raise :class:`UserError` if fairseq keeps parts of the model where growth does not reach them."""
    cfg = trainer.cfg
    # These divide parameters among devices, keep copies of them, or name the layers in a file.
    impossible = {
        "--ddp-backend fully_sharded": cfg.distributed_training.ddp_backend == "fully_sharded",
        "--pipeline-model-parallel": cfg.distributed_training.pipeline_model_parallel,
        "--use-bmuf": cfg.optimization.use_bmuf,
        "--quantization-config-path": cfg.common.quantization_config_path is not None,
        "--ema-seed-model": cfg.ema.store_ema and cfg.ema.ema_seed_model is not None,
    }
    if keep_moments:  # which no single process, or no single optimizer, has
        impossible["--zero-sharding os"] = cfg.distributed_training.zero_sharding != "none"
        impossible["--optimizer composite"] = getattr(cfg.optimizer, "_name", None) == "composite"
    for option, is_set in impossible.items():
        if is_set:
            other = "--growth-optimizer-state keep" if option.startswith(("--zero", "--opt")) else "--growth-stages"
            raise UserError(f"{option} cannot be used with {other}; leave one of them out")


def grow_trainer(
    trainer: Trainer,
    build: Callable[[], nn.Module],
    sources: SourcesOfSides,
    *,
    init: str = "copy",
    frozen: str = "none",
    keep_moments: bool = False,
) -> LastGrowth:
    """Make the trainer's model deeper, with a new optimizer, a restarted learning rate and a grown moving average.

    All processes call this between the same two updates and compute the same, which is checked. ``build`` makes a
    model from ``trainer.cfg.model``. With ``keep_moments`` the new optimizer keeps the moments, and copies get those of
    their source.
    """
    started = time.perf_counter()
    model = trainer.get_model()
    before = {side: len(getattr(model, side).layers) for side in sources}
    # Read what is kept before reinitialize() drops it; ``trainer.ema`` (not ``_ema``) would create an average.
    moments = moments_of(trainer.optimizer, model) if keep_moments else {}
    schedule = trainer.lr_scheduler.state_dict()
    # The loss scale of --fp16 or --amp.
    scaler = getattr(trainer.optimizer, "scaler", None)
    average = trainer._ema
    trainer.zero_grad()

    # 1. The model. fairseq's reinitialize() drops its wrapper and the optimizer.
    trainer.reinitialize()
    with open_dict(trainer.cfg.model):
        for side, layers in sources.items():
            trainer.cfg.model[f"{side}_layers"] = len(layers)
    # Random values depend only on the run's seed and the update, so they are the same in all processes and all runs.
    seed = trainer.cfg.common.seed + trainer.get_num_updates()
    parameter_map = grow_model(model, build, sources, seed, init=init)
    last_growth = LastGrowth(parameter_map.new, frozen)
    frozen_count = last_growth.freeze(model)

    # 2. The optimizer, which fairseq builds for the new parameters at its next use.
    if keep_moments:
        give_moments(trainer.optimizer, model, moments, parameter_map)
    if isinstance(scaler, torch.amp.GradScaler):
        trainer.optimizer.scaler.load_state_dict(scaler.state_dict())
    elif scaler is not None:  # fairseq's
        trainer.optimizer.scaler.loss_scale = scaler.loss_scale

    # 3. The learning rate. When fairseq built the scheduler, it set the rate of update 0.
    trainer.lr_scheduler.load_state_dict(schedule)
    restarts = isinstance(trainer.lr_scheduler, RestartingSchedule)
    if restarts:
        trainer.lr_scheduler.restart(trainer.get_num_updates())
    rate = trainer.lr_step_update()

    # 4. The moving average: the same growth of the averaged values.
    if average is not None:
        values, precise = average.get_model().state_dict(), average.fp32_params
        # ``trainer.ema`` now builds an average of the deep model, which then takes the grown values.
        trainer._ema = None
        trainer.ema.restore(parameter_map.apply(values), build_fp32_params=False)
        if precise:
            trainer.ema.build_fp32_params(parameter_map.apply(precise))

    require_same_on_all_processes(trainer)
    grown = " and ".join(f"{side} from {before[side]} to {len(layers)} layers" for side, layers in sources.items())
    logger.info(
        "grew the %s after %d updates in %.2f s; %s parameters%s, learning rate %.4g%s",
        grown,
        trainer.get_num_updates(),
        time.perf_counter() - started,
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        f", {frozen_count:,} of them frozen" if frozen_count else "",
        rate,
        "" if restarts else ", which a schedule with restarts, such as inverse_sqrt_restart, would have restarted",
    )
    return last_growth


def require_same_on_all_processes(trainer: Trainer) -> None:
    """Raise RuntimeError unless every process has the same parameters, bit for bit."""
    if trainer.data_parallel_world_size == 1:
        return
    # Sums of bit patterns as integers: exact in any order, and NaN equals NaN.
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [
        parameter.detach().view(bits[parameter.element_size()]).sum(dtype=torch.int64)
        for parameter in trainer.get_model().parameters()
    ]
    sums_here = torch.stack(sums).to(trainer.device)
    sums_of_processes = [torch.empty_like(sums_here) for _ in range(trainer.data_parallel_world_size)]
    torch.distributed.all_gather(sums_of_processes, sums_here, group=trainer.data_parallel_process_group)
    for rank, sums_there in enumerate(sums_of_processes):
        if not torch.equal(sums_there, sums_of_processes[0]):
            raise RuntimeError(f"after growth process {rank} has other parameters than process 0")
