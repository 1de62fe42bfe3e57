"""At which depth a growing run goes on: that of the checkpoint which fairseq is about to restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.layer_sources import STRATEGIES
from fairseq_depthwise.growth.stages import GrowthPlan

#: fairseq's default of ``--restore-file``: the newest checkpoint of the run's own folder, where there is one.
_LAST = "checkpoint_last.pt"


class Restoring:
    """What fairseq will restore, from the options that ``fairseq.checkpoint_utils.load_checkpoint`` reads.

    Args:
        options: ``save_dir``, ``restore_file``, ``continue_once`` and ``finetune_from_model`` say where the checkpoint
            is, ``reset_dataloader`` and ``reset_optimizer`` whether epochs and updates are counted anew.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    def path(self) -> str | None:
        """The checkpoint that fairseq will restore; None where it starts afresh.

        Raises:
            UserError: an option names a file that does not exist, which fairseq itself may pass over in silence.
        """
        if self.options.restore_file != _LAST:
            return _existing("--restore-file", self.options.restore_file)
        if self._has_own:
            return self._own
        if self.options.continue_once is not None:
            return _existing("--continue-once", self.options.continue_once)
        if self.options.finetune_from_model is not None:
            return _existing("--finetune-from-model", self.options.finetune_from_model)
        return None

    @property
    def counts_anew(self) -> bool:
        """Whether the restored model begins the plan from its first stage."""
        elsewhere = self.options.restore_file != _LAST or self._has_own or self.options.continue_once is not None
        return self.options.finetune_from_model is not None and not elsewhere

    @property
    def _own(self) -> str:
        return os.path.join(self.options.save_dir, _LAST)

    @property
    def _has_own(self) -> bool:
        return os.path.isfile(self._own)


def _existing(option: str, path: str) -> str:
    if not os.path.isfile(path):
        raise UserError(f"{option} {path}: there is no such file")
    return path


def depth_to_resume(
    path: str,
    state: Mapping[str, Any],
    side: str,
    plan: GrowthPlan,
    restoring: Restoring,
) -> int:
    """Return the number of layers of the growing stack in a checkpoint.

    Args:
        path: the checkpoint that will be restored.
        state: what it holds.
        side: "encoder" or "decoder".
        plan: the stages of the run that goes on.
        restoring: fairseq's options for restoring.

    Raises:
        UserError: the plan has another depth at the checkpoint's epoch or update; the message says both.
    """
    depth = checkpoints.options_in(state).get(f"{side}_layers")
    last, following = _numbers_around(state, plan, restoring)
    # At a stage boundary the checkpoint may have been grown already, by `fairseq-depthwise grow`.
    planned = [plan.depths[plan.stage_of(number)] for number in (max(last, 1), following)]
    if depth not in planned:
        moment = f"after {last} updates" if plan.in_updates else f"after {last} epochs"
        if not plan.in_updates and following == last:
            moment = f"within epoch {last}"
        raise UserError(
            f"{path} has {depth} {side} layers {moment}, and --growth-stages {plan.text} has {planned[0]} there; "
            f"{_origin(state, plan)}give the stages that fit, or begin elsewhere"
        )
    return int(depth)


def _origin(state: Mapping[str, Any], plan: GrowthPlan) -> str:
    """Say how a checkpoint came to its depth, where that is not how the plan has it."""
    grown_from = (state.get("extra_state") or {}).get("grown_from")
    if grown_from:
        return f"it was grown as a file from {grown_from.partition(',')[0]}; "
    given = stages_in(state)
    if given is None:
        return "it was not trained in stages; "
    return "" if given[0] == plan.text else f"it was trained with --growth-stages {given[0]}; "


def stages_in(state: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return ``--growth-stages``, ``-side`` and ``-strategy`` of a checkpoint's run; None for other runs."""
    given = checkpoints.options_in(state, "task")
    text = given.get("growth_stages")
    if not text or not isinstance(text, str):
        return None
    return text, given.get("growth_side", "encoder"), given.get("growth_strategy", STRATEGIES[0])


def last_epoch(state: Mapping[str, Any]) -> int:
    """Return the epoch of the last update before a checkpoint; 0 where there was none."""
    iterator = _iterator(state)
    # At an epoch's end fairseq writes the number of the next.
    return int(iterator.get("epoch", 1)) - (1 if iterator.get("iterations_in_epoch", 0) == 0 else 0)


def _iterator(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return (state.get("extra_state") or {}).get("train_iterator") or {"epoch": 1, "iterations_in_epoch": 0}


def _numbers_around(state: Mapping[str, Any], plan: GrowthPlan, restoring: Restoring) -> tuple[int, int]:
    """Return the plan's epoch or update before (0 at the start) and after the checkpoint; within an epoch the same."""
    if restoring.counts_anew:
        return 0, 1
    if plan.in_updates:
        updates = 0 if restoring.options.reset_optimizer else checkpoints.updates_in(state)
        return updates, updates + 1
    return (0, 1) if restoring.options.reset_dataloader else (last_epoch(state), int(_iterator(state).get("epoch", 1)))
