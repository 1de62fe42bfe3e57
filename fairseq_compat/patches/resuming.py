"""Patches for resuming: optimizer, learning rate and moving averages come from the checkpoint, and must match.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fairseq_compat import checkpoints, provenance, versions
from fairseq_compat.errors import UserError
from fairseq_compat.literals import dictionary
from fairseq_compat.patches.saving import KIND_OF_SCORE, SCORE_OF_EPOCH, describe_best_score, get_patience_counts
from fairseq_compat.patching import patch, replaces

logger = logging.getLogger(__name__)

#: Key of a checkpoint's ``extra_state``: the number of updates since the moving average was last updated.
SINCE_AVERAGE = "updates_since_ema"

#: Key of a checkpoint's ``extra_state``: the number of validations in a row without improvement, and the best score.
PATIENCE = "patience"


@patch("fairseq.optim.lr_scheduler.reduce_lr_on_plateau")
def save_plateau_counts(module: Any) -> None:
    """``--lr-scheduler reduce_lr_on_plateau`` forgets at a restart how many validations brought no improvement.

    Here its counts are in the checkpoint.
    """
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
        # PyTorch adds 1 for each call with a score, and calls come in another order when a run resumes.
        self.lr_scheduler.last_epoch = epoch if val_loss is None else epoch + 1
        return rate


@patch("fairseq.optim.lr_scheduler.polynomial_decay_schedule")
def save_annealed_rate(module: Any) -> None:
    """``--lr-scheduler polynomial_decay`` with ``--force-anneal`` has another learning rate after a restart.

    An annealed epoch begins with the last rate of the epoch before, and decays from there. A run that resumes within
    such an epoch decays its present rate once more. Here a checkpoint has the rate and its epoch.
    """

    @replaces(module.PolynomialDecayLRSchedule, "get_next_lr")
    def get_next_lr(original: Any, self: Any, epoch: int) -> Any:
        # fairseq returns the optimizer's present rate for an annealed epoch: right only at its beginning.
        is_annealed = self.cfg.force_anneal is not None and epoch >= self.cfg.force_anneal
        is_same_epoch = epoch == getattr(self, "begun_epoch", None)
        self.begun_epoch = epoch
        return self.lr if is_annealed and is_same_epoch else original(self, epoch)

    @replaces(module.PolynomialDecayLRSchedule, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        return {**original(self), "lr": self.lr, "begun_epoch": getattr(self, "begun_epoch", None)}

    @replaces(module.PolynomialDecayLRSchedule, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: dict[str, Any]) -> None:
        original(self, state)
        self.lr = state.get("lr", self.lr)
        self.begun_epoch = state.get("begun_epoch")


@patch("fairseq.checkpoint_utils", function="load_checkpoint")
def restore_learning_rate(original: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
    """A run that stops at the end of an epoch loses the score that the learning rate depends on.

    fairseq saves first and passes the score to the scheduler afterwards. Here a run that resumes with the next epoch
    passes it before. And with ``--reset-lr-scheduler`` the rate of ``reduce_lr_on_plateau`` stays the checkpoint's,
    whatever ``--lr`` is: it is loaded with the optimizer, and this scheduler sets none after warm-up. Here it is
    ``--lr``.
    """
    dictionary("--optimizer-overrides", cfg.optimizer_overrides)  # an error names the option
    extra_state, epoch_itr = original(cfg, trainer, **options)

    # --finetune-from-model resets the scheduler, too, unless this run resumes (num_updates > 0).
    is_reset = cfg.reset_optimizer or cfg.reset_lr_scheduler or trainer.get_num_updates() == 0
    # A checkpoint of the end of an epoch has the next epoch and 0. (The state in old checkpoints has version 1.)
    place = (extra_state or {}).get("train_iterator") or {}
    if not is_reset and place.get("version", 1) >= 2 and place["iterations_in_epoch"] == 0 and place["epoch"] > 1:
        score = extra_state.get(SCORE_OF_EPOCH, extra_state.get("val_loss"))
        trainer.lr_step(place["epoch"] - 1, score)

    scheduler = trainer.lr_scheduler
    is_new_scheduler = extra_state is not None and cfg.reset_lr_scheduler and not cfg.reset_optimizer
    if is_new_scheduler and type(scheduler).__name__ == "ReduceLROnPlateauLRSchedule" and scheduler.warmup_end:
        trainer.optimizer.set_lr(scheduler.cfg.lr[0])
    return extra_state, epoch_itr


@patch("fairseq.optim.fairseq_optimizer", function="FairseqOptimizer.load_state_dict")
def compare_optimizer_options(original: Any, self: Any, state_dict: Any, optimizer_overrides: Any = None) -> None:
    """A changed ``--weight-decay`` or ``--adam-betas`` has no effect in a resumed run, which keeps the old value.

    Nor have ``--optimizer-overrides`` with unknown names, or with ``lr``. Here all of these are refused.
    """
    asked = [dict(group) for group in self.param_groups]
    known = set().union(*asked) - {"params", "lr"}
    for name in optimizer_overrides or {}:
        if name == "lr":
            raise UserError("--optimizer-overrides 'lr' has no effect, as the scheduler sets the rate; give --lr")
        if name not in known:
            options = ", ".join(sorted(known))
            raise UserError(f"--optimizer-overrides {name!r} is not an option of the optimizer; give one of {options}")

    original(self, state_dict, optimizer_overrides)  # replaces the options by those of the state
    # Only options of the command line: param groups also have internal entries of the optimizer.
    names = getattr(self, "optimizer_config", {}).keys() - {"lr", *(optimizer_overrides or {})}
    for asked_group, group in zip(asked, self.param_groups, strict=False):
        for name in asked_group.keys() & group.keys() & names:
            wanted, trained = _list_to_tuple(asked_group[name]), _list_to_tuple(group[name])
            if wanted != trained:
                raise UserError(
                    f"the checkpoint's optimizer has {name} {trained}, and this command's {wanted}; give the option of "
                    f"its training, or --optimizer-overrides \"{{'{name}': {wanted}}}\" to continue with another value"
                )


def _list_to_tuple(value: Any) -> Any:
    # --adam-betas is a tuple on the command line, and a list in a configuration.
    return tuple(value) if isinstance(value, list) else value


@patch("fairseq.trainer")
def record_and_compare_training(module: Any) -> None:
    """A checkpoint is resumed silently with a dictionary in another order, or with swapped languages.

    No tensor shape shows that, nor another number of attention heads. ``--patience`` forgets how many validations in a
    row brought no improvement, and ``--ema-update-freq`` the updates since the average was last updated. With
    ``--store-ema``, a checkpoint without an average ends in ``KeyError: 'model'``.

    Here every checkpoint records all of this in its ``extra_state``, with the versions that wrote it. Its provenance
    (:mod:`fairseq_compat.provenance`) is compared when a training resumes, and a new average starts from the model.
    """

    @replaces(module.Trainer, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original(self)
        extra_state = state["extra_state"]
        # belongs_to is set when a checkpoint is loaded: a resumed training keeps what its first run recorded.
        record = getattr(self, "belongs_to", None) or provenance.of_training(self.task, self.cfg)
        extra_state[provenance.ENTRY] = dict(record)
        extra_state["versions"] = versions.recorded_versions()
        counts = {name: value for name, value in get_patience_counts().items() if name in ("best", "num_runs")}
        if counts:
            extra_state[PATIENCE] = counts
        if self.cfg.ema.store_ema:
            extra_state[SINCE_AVERAGE] = self.ema.update_freq_counter
        return state

    @replaces(module.Trainer, "load_checkpoint")
    def load_checkpoint(
        original: Any,
        self: Any,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        _compare_checkpoint(self, filename, reset_optimizer=reset_optimizer, reset_lr_scheduler=reset_lr_scheduler)
        averages = self.cfg.ema.store_ema
        self.cfg.ema.store_ema = False  # so that fairseq does not load the average, which is done below
        try:
            extra_state = original(
                self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters
            )
        except Exception as error:
            # PyTorch's error lists all parameters that differ; a sentence about the first is enough.
            if not isinstance(error, UserError):
                _require_same_sizes(filename, self.get_model())
            raise
        finally:
            self.cfg.ema.store_ema = averages
        if extra_state is None:  # the file does not exist
            return None

        _restore_patience(self.cfg.checkpoint, filename, extra_state, is_reset=reset_optimizer or reset_meters)
        if averages:
            _load_average(self, extra_state)
        elif "ema" in extra_state:
            logger.warning("the checkpoint has a moving average; without --store-ema, later checkpoints have none")
        return extra_state


def _compare_checkpoint(trainer: Any, path: str, *, reset_optimizer: bool, reset_lr_scheduler: bool) -> None:
    """Compare a checkpoint with the training that loads it, and set the record of that training.

    Raises:
        UserError: the checkpoint belongs to other data or another model, or cannot be resumed with these options.
    """
    trainer.belongs_to = provenance.of_training(trainer.task, trainer.cfg)
    # Only the first process reads the file. fairseq starts from scratch if there is none.
    if not trainer.is_data_parallel_master or not os.path.isfile(path):
        return
    state = checkpoints.load_checkpoint(path, mapped=True)
    # A new training may have other data, languages and architecture options.
    is_new = reset_optimizer or trainer.cfg.checkpoint.reset_dataloader
    if not is_new:
        provenance.require_same_architecture(path, checkpoints.options_in(state), trainer.cfg.model)
    _require_averages_of_model(state, path, trainer.get_model())
    recorded = provenance.recorded_in(state)
    trainer.belongs_to = provenance.require_resumable(path, recorded, trainer.task, trainer.cfg, is_new=is_new)
    if not reset_optimizer:
        _require_same_training(state, path, trainer, reset_lr_scheduler=reset_lr_scheduler)


def _require_averages_of_model(state: Any, name: str, model: torch.nn.Module) -> None:
    """Raise UserError if the moving averages do not fit a checkpoint's model, which fairseq does not check."""
    extra_state = state.get("extra_state") or {}
    for entry in ("ema", "ema_fp32_params"):
        average = extra_state.get(entry)
        if average is None:
            continue
        is_same = average.keys() == state["model"].keys()
        for key, tensor in average.items() if is_same else ():
            parameter = state["model"][key]
            types = {parameter.dtype, parameter.dtype if entry == "ema" else torch.float32}
            # In a tensor with overlapping elements, updates would be written to the same memory repeatedly.
            is_whole = tensor.stride() == torch.empty_like(tensor).stride()
            is_same = is_same and tensor.shape == parameter.shape and tensor.dtype in types and is_whole
        if not is_same:
            raise UserError(f"{name} is damaged: its moving averages ({entry}) are not those of its model")
        checkpoints.require_finite(average.items(), name)
        checkpoints.require_one_value(model, average)


def _require_same_training(state: Any, name: str, trainer: Any, *, reset_lr_scheduler: bool) -> None:
    """Raise UserError unless a training can resume with the optimizer and the learning rate of a checkpoint.

    Without an optimizer state fairseq starts again at update 1; with another optimizer or scheduler it raises an
    exception, or misreads the state.
    """
    if state.get("last_optimizer_state") is None:
        raise UserError(
            f"{name} has no optimizer state, such as after averaging or with --no-save-optimizer-state, and cannot be "
            "resumed; add --reset-optimizer to train from its weights, starting at update 1"
        )
    for trained, asked, reset in _list_differences(state, trainer):
        is_reset = reset_lr_scheduler and reset == "--reset-lr-scheduler"
        if trained != asked and not is_reset:
            remedy = f"give {trained}, or {reset} to start with a new one"
            raise UserError(f"{name} was trained with {trained}, and this command has {asked}; {remedy}")


def _list_differences(state: Any, trainer: Any) -> list[tuple[str, str, str]]:
    """Return, for each difference, what a checkpoint was trained with, what the trainer has, and the reset option."""
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY

    options = state.get("cfg") or state.get("args")
    differences = []
    for part, reset in (
        ("criterion", "--reset-optimizer"),
        ("optimizer", "--reset-optimizer"),
        ("lr_scheduler", "--reset-lr-scheduler"),
    ):
        trained = provenance.settings_in(part, options).get(part)
        asked = provenance.settings_in(part, trainer.cfg).get(part)
        if trained is None or asked is None:
            continue
        if part == "criterion":
            asked_class = type(trainer.get_criterion()).__name__
            # fairseq compares class names, too.
            history = state.get("optimizer_history") or [{}]
            is_same = history[-1].get("criterion_name", asked_class) == asked_class
        elif part == "optimizer":
            classes = [OPTIMIZER_REGISTRY.get(name) for name in (trained, asked)]
            # An optimizer that replaces one of fairseq has its class name.
            is_same = None in classes or classes[0].__name__ == classes[1].__name__
        else:
            # A scheduler may declare others as its predecessors, whose state it reads.
            is_same = trained in (asked, *getattr(LR_SCHEDULER_REGISTRY.get(asked), "continues", ()))
        if not is_same:
            option = f"--{part.replace('_', '-')}"
            differences.append((f"{option} {trained}", f"{option} {asked}", reset))

    if provenance.settings_in("lr_scheduler", trainer.cfg).get("lr_scheduler") == "reduce_lr_on_plateau":
        # It continues with the rate in the optimizer's state: a changed --lr would have no effect.
        first_rates = checkpoints.options_in(state, "optimization").get("lr")
        if first_rates is not None:
            asked_rates = trainer.cfg.optimization.lr
            differences.append((_format_rate(first_rates), _format_rate(asked_rates), "--reset-lr-scheduler"))
    common = checkpoints.options_in(state, "common")
    if common:
        differences.append((_format_precision(common), _format_precision(trainer.cfg.common), "--reset-optimizer"))
    return differences


def _format_rate(rates: Any) -> str:
    return f"--lr {','.join(str(float(rate)) for rate in rates)}"


def _format_precision(common: Mapping[str, Any]) -> str:
    """Return the precision options that determine the form of an optimizer's state.

    fp16 and bf16 have the same one, so that a training may change from one to the other.
    """
    if common.get("memory_efficient_fp16") or common.get("memory_efficient_bf16"):
        return "--memory-efficient-fp16 or --memory-efficient-bf16"
    if common.get("amp"):
        return "--amp"
    return "--fp16 or --bf16" if common.get("fp16") or common.get("bf16") else "float32"


def _require_same_sizes(path: str, model: torch.nn.Module) -> None:
    """Raise UserError if a checkpoint that could not be loaded has other parameters than the model."""
    trained, asked = checkpoints.load_checkpoint(path, mapped=True)["model"], model.state_dict()
    for name in {**asked, **trained}:
        trained_shape = tuple(trained[name].shape) if name in trained else None
        asked_shape = tuple(asked[name].shape) if name in asked else None
        if trained_shape != asked_shape:
            in_file = f"no {name}" if trained_shape is None else f"{name} of {trained_shape}"
            in_model = "none" if asked_shape is None else f"one of {asked_shape}"
            raise UserError(
                f"{path} has {in_file}, and this model has {in_model}: give the options of its training, and data made "
                "with its dictionaries, fairseq-preprocess --srcdict and --tgtdict"
            )


def _restore_patience(options: Any, path: str, extra_state: dict[str, Any], *, is_reset: bool) -> None:
    """Restore the counts of ``--patience``, unless a checkpoint's scores cannot be compared with new ones."""
    # Scores of another kind, such as BLEU after a loss, are dropped.
    kind = describe_best_score(options)
    trained_kind = extra_state.get(KIND_OF_SCORE, kind)
    if trained_kind != kind:
        logger.info("the best checkpoint had the %s; from now on it has the %s", trained_kind, kind)
        for entry in ("best", PATIENCE, "val_loss"):
            extra_state.pop(entry, None)
        extra_state[SCORE_OF_EPOCH] = None
    is_own = Path(path).resolve().parent == Path(options.save_dir).resolve()
    if options.reset_dataloader and not is_own:  # the best score of another run may never be reached
        extra_state.pop("best", None)
        extra_state.pop(PATIENCE, None)
    if not is_reset:
        get_patience_counts().update(extra_state.get(PATIENCE) or {})


def _load_average(trainer: Any, extra_state: Mapping[str, Any]) -> None:
    """Load the moving average of a checkpoint; if there is none, start it from the trainer's model."""
    ema, options = trainer.ema, trainer.cfg.ema
    average = extra_state.get("ema")
    if average is None:
        logger.info("the checkpoint has no moving average; a new one starts here")
        if options.ema_seed_model is not None:  # from which fairseq has started the average
            return
        average = trainer.get_model().state_dict()
    ema.restore(average, build_fp32_params=False)
    if options.ema_fp32:
        ema.build_fp32_params(extra_state.get("ema_fp32_params"))
    ema.update_freq_counter = extra_state.get(SINCE_AVERAGE, 0)
