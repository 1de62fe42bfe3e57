"""Patches of resuming: what of optimizer, learning rate and averages a checkpoint has to have, and has to fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fairseq_compat import checkpoints, provenance
from fairseq_compat.errors import UserError
from fairseq_compat.literals import dictionary
from fairseq_compat.patches.saving import SCORE_OF_EPOCH
from fairseq_compat.patching import patch, replaces

logger = logging.getLogger(__name__)

#: Of a checkpoint's ``extra_state``: the updates since the moving average had its last one.
SINCE_AVERAGE = "updates_since_ema"


@patch("fairseq.optim.lr_scheduler.reduce_lr_on_plateau")
def validations_without_progress(module: Any) -> None:
    """``--lr-scheduler reduce_lr_on_plateau`` forgets at a restart how many validations were no better."""
    counts = ("num_bad_epochs", "cooldown_counter")

    @replaces(module.ReduceLROnPlateauLRSchedule, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        return {**original(self), **{name: getattr(self.lr_scheduler, name) for name in counts}}

    @replaces(module.ReduceLROnPlateauLRSchedule, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: dict[str, Any]) -> None:
        original(self, state)
        for name in counts:
            setattr(self.lr_scheduler, name, state.get(name, 0))

    @replaces(module.ReduceLROnPlateauLRSchedule, "step")
    def step(original: Any, self: Any, epoch: int, val_loss: float | None = None) -> Any:
        rate = original(self, epoch, val_loss)
        self.lr_scheduler.last_epoch = epoch if val_loss is None else epoch + 1  # in any order of calls
        return rate


@patch("fairseq.optim.lr_scheduler.polynomial_decay_schedule")
def rate_of_annealed_epochs(module: Any) -> None:
    """``--lr-scheduler polynomial_decay`` with ``--force-anneal`` takes another rate after a stop.

    An annealed epoch begins with the rate that the one before ended with, and decays from there. A run that goes on
    within such an epoch takes the rate of that moment for its first. Here a checkpoint has the rate and its epoch.
    """

    @replaces(module.PolynomialDecayLRSchedule, "get_next_lr")
    def get_next_lr(original: Any, self: Any, epoch: int) -> Any:
        is_annealed = self.cfg.force_anneal is not None and epoch >= self.cfg.force_anneal
        goes_on = epoch == getattr(self, "begun_epoch", None)
        self.begun_epoch = epoch
        return self.lr if is_annealed and goes_on else original(self, epoch)

    @replaces(module.PolynomialDecayLRSchedule, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        return {**original(self), "lr": self.lr, "begun_epoch": getattr(self, "begun_epoch", None)}

    @replaces(module.PolynomialDecayLRSchedule, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: dict[str, Any]) -> None:
        original(self, state)
        self.lr = state.get("lr", self.lr)
        self.begun_epoch = state.get("begun_epoch")


@patch("fairseq.checkpoint_utils", function="load_checkpoint")
def end_of_the_last_epoch(original: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
    """The score that an epoch ends with is lost for the learning rate where a run stops there.

    fairseq saves first and gives the scheduler the score afterwards. Here a run that goes on with the next epoch does
    that before.
    """
    extra_state, epoch_itr = original(cfg, trainer, **options)
    # --finetune-from-model resets all of that, but in a run of its own that goes on.
    is_reset = cfg.reset_optimizer or cfg.reset_lr_scheduler or trainer.get_num_updates() == 0
    place = (extra_state or {}).get("train_iterator") or {}
    if not is_reset and place.get("version", 1) >= 2 and place["iterations_in_epoch"] == 0 and place["epoch"] > 1:
        score = extra_state.get(SCORE_OF_EPOCH, extra_state.get("val_loss"))
        trainer.lr_step(place["epoch"] - 1, score)
    return extra_state, epoch_itr


@patch("fairseq.checkpoint_utils", function="load_checkpoint")
def rate_of_a_new_plateau(original: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
    """``--reset-lr-scheduler`` with ``reduce_lr_on_plateau`` goes on with the checkpoint's rate, whatever ``--lr`` is.

    The rate comes back with the optimizer, and this scheduler sets none after its warm-up. Here it begins with its own.
    """
    extra_state, epoch_itr = original(cfg, trainer, **options)
    scheduler = trainer.lr_scheduler
    begins = extra_state is not None and cfg.reset_lr_scheduler and not cfg.reset_optimizer
    if begins and type(scheduler).__name__ == "ReduceLROnPlateauLRSchedule" and scheduler.warmup_end:
        trainer.optimizer.set_lr(scheduler.cfg.lr[0])
    return extra_state, epoch_itr


@patch("fairseq.checkpoint_utils", function="load_checkpoint")
def dictionary_of_overrides(original: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
    """A mistake in ``--optimizer-overrides`` is an error without the name of the option."""
    dictionary("--optimizer-overrides", cfg.optimizer_overrides)
    return original(cfg, trainer, **options)


@patch("fairseq.optim.fairseq_optimizer", function="FairseqOptimizer.load_state_dict")
def known_overrides(original: Any, self: Any, state_dict: Any, optimizer_overrides: Any = None) -> None:
    """``--optimizer-overrides`` with a name that the optimizer does not have, or with the rate, changes nothing."""
    known = {name for group in self.param_groups for name in group} - {"params", "lr"}
    for name in optimizer_overrides or {}:
        if name == "lr":
            raise UserError("--optimizer-overrides 'lr' has no effect, as the scheduler sets the rate; give --lr")
        if name not in known:
            raise UserError(
                f"--optimizer-overrides {name!r} is no option of the optimizer; it has {', '.join(sorted(known))}"
            )
    original(self, state_dict, optimizer_overrides)


@patch("fairseq.trainer")
def moving_averages(module: Any) -> None:
    """With ``--ema-update-freq`` a resumed run counts the updates between two of the average from 0.

    ``--store-ema`` with a checkpoint that has no average, to go on from or to fine-tune, ends in ``KeyError: 'model'``:
    fairseq begins one with the model's values, which it has let go of before. Here it begins with the loaded model.
    """

    @replaces(module.Trainer, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original(self)
        if self.cfg.ema.store_ema:
            state["extra_state"][SINCE_AVERAGE] = self.ema.update_freq_counter
        return state

    @replaces(module.Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, *args: Any, **options: Any) -> Any:
        averages = self.cfg.ema.store_ema
        self.cfg.ema.store_ema = False  # the average is loaded here
        try:
            extra_state = original(self, *args, **options)
        finally:
            self.cfg.ema.store_ema = averages
        if averages and extra_state is not None:
            _load_average(self, extra_state)
        elif "ema" in (extra_state or {}):
            logger.warning("the checkpoint has a moving average; without --store-ema, later ones have none")
        return extra_state


def _load_average(trainer: Any, extra_state: Mapping[str, Any]) -> None:
    """Give a trainer the moving average of a checkpoint; where there is none, it begins with the trainer's model."""
    ema, options = trainer.ema, trainer.cfg.ema
    average = extra_state.get("ema")
    if average is None:
        logger.info("the checkpoint has no moving average, which begins here")
        if options.ema_seed_model is not None:
            return
        average = trainer.get_model().state_dict()
    ema.restore(average, build_fp32_params=False)
    if options.ema_fp32:
        ema.build_fp32_params(extra_state.get("ema_fp32_params"))
    ema.update_freq_counter = extra_state.get(SINCE_AVERAGE, 0)


@patch("fairseq.optim.fairseq_optimizer", function="FairseqOptimizer.load_state_dict")
def options_of_optimizers(original: Any, self: Any, state_dict: Any, optimizer_overrides: Any = None) -> None:
    """Another ``--weight-decay`` or ``--adam-betas`` does nothing in a resumed run, which goes on with the old one."""
    asked = [dict(group) for group in self.param_groups]
    original(self, state_dict, optimizer_overrides)
    # What the command line says; in groups there is also what an optimizer keeps for itself.
    names = getattr(self, "optimizer_config", {}).keys() - {"lr", *(optimizer_overrides or {})}
    for before, group in zip(asked, self.param_groups, strict=False):
        for name in before.keys() & group.keys() & names:
            given, trained = _comparable(before[name]), _comparable(group[name])
            if given != trained:
                raise UserError(
                    f"the checkpoint's optimizer has {name} {trained}, and this command's {given}; give the option of "
                    f"its training, or --optimizer-overrides \"{{'{name}': {given}}}\" to go on with another value"
                )


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def require_same_training(state: Any, name: str, trainer: Any, *, reset_lr_scheduler: bool) -> None:
    """Raise UserError unless a training can go on with the optimizer and the learning rate of a checkpoint.

    fairseq begins again at update 1 where a checkpoint has no optimizer state, and ends with an exception, or takes a
    state for what it is not, where another optimizer or scheduler is asked for.
    """
    if state.get("last_optimizer_state") is None:
        raise UserError(
            f"{name} has no optimizer state, as with --no-save-optimizer-state and after averaging, so that its "
            "training cannot go on; add --reset-optimizer to train from its weights, from update 1"
        )
    for trained, asked, reset in _choices(state, trainer):
        is_reset = reset_lr_scheduler and reset == "--reset-lr-scheduler"
        if trained != asked and not is_reset:
            raise UserError(
                f"{name} was trained with {trained}, and this command has {asked}; give {trained}, or {reset} to "
                "begin with another one"
            )


def _choices(state: Any, trainer: Any) -> list[tuple[str, str, str]]:
    """Return what a checkpoint was trained with, what a trainer has instead, and the option that begins with it."""
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY

    options = state.get("cfg") or state.get("args")
    last = (state.get("optimizer_history") or [{}])[-1]
    choices = []

    def compare(part: str, reset: str, is_same: Callable[[str, str], bool]) -> None:
        trained, asked = (provenance.settings_in(part, given).get(part) for given in (options, trainer.cfg))
        if trained is not None and asked is not None and not is_same(trained, asked):
            option = f"--{part.replace('_', '-')}"
            choices.append((f"{option} {trained}", f"{option} {asked}", reset))

    def same_optimizer(trained: str, asked: str) -> bool:
        classes = [OPTIMIZER_REGISTRY.get(name) for name in (trained, asked)]
        # Ours has the name of the one that it stands for.
        return None in classes or classes[0].__name__ == classes[1].__name__

    def same_scheduler(trained: str, asked: str) -> bool:
        return trained in (asked, *getattr(LR_SCHEDULER_REGISTRY.get(asked), "continues", ()))

    criterion = type(trainer.get_criterion()).__name__
    compare("criterion", "--reset-optimizer", lambda trained, asked: last.get("criterion_name", criterion) == criterion)
    compare("optimizer", "--reset-optimizer", same_optimizer)
    compare("lr_scheduler", "--reset-lr-scheduler", same_scheduler)
    if provenance.settings_in("lr_scheduler", trainer.cfg).get("lr_scheduler") == "reduce_lr_on_plateau":
        # Its rate goes on with what the optimizer has; --lr is where it began.
        begun = checkpoints.options_in(state, "optimization").get("lr")
        if begun is not None:
            choices.append((_rate(begun), _rate(trainer.cfg.optimization.lr), "--reset-lr-scheduler"))
    recorded = checkpoints.options_in(state, "common")
    if recorded:
        choices.append((_precision(recorded), _precision(trainer.cfg.common), "--reset-optimizer"))
    return choices


def _rate(rates: Any) -> str:
    return f"--lr {','.join(str(float(rate)) for rate in rates)}"


def _precision(common: Mapping[str, Any]) -> str:
    """Return the options of precision by what they do to an optimizer's state, which is one for fp16 and bf16."""
    if common.get("memory_efficient_fp16") or common.get("memory_efficient_bf16"):
        return "--memory-efficient-fp16 or --memory-efficient-bf16"
    if common.get("amp"):
        return "--amp"
    return "--fp16 or --bf16" if common.get("fp16") or common.get("bf16") else "float32"
