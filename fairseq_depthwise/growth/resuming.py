"""At which depth a growing run goes on: that of the checkpoint which fairseq is about to restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.stages import GrowthPlan
from fairseq_depthwise.growth.trained_model import options_in, updates_in

#: fairseq's default of ``--restore-file``: the newest checkpoint of the run's own folder, where there is one.
_LAST = "checkpoint_last.pt"


@dataclass(frozen=True)
class Restoring:
    """The options of fairseq that decide what is restored, as ``fairseq.checkpoint_utils.load_checkpoint`` reads them.

    Attributes:
        save_dir, restore_file, continue_once, finetune_from_model: where the checkpoint is.
        reset_dataloader: epochs are counted anew.
        reset_optimizer: updates are counted anew.
    """

    save_dir: str
    restore_file: str
    continue_once: str | None
    finetune_from_model: str | None
    reset_dataloader: bool
    reset_optimizer: bool

    @property
    def path(self) -> str | None:
        """The checkpoint that fairseq will restore; None where it starts afresh.

        Raises:
            UserError: ``--restore-file`` names a file that does not exist, which fairseq itself passes over in silence.
        """
        if self.restore_file != _LAST:
            if not os.path.isfile(self.restore_file):
                raise UserError(f"--restore-file {self.restore_file}: there is no such file")
            return self.restore_file
        own = os.path.join(self.save_dir, _LAST)
        return own if os.path.isfile(own) else self.continue_once or self.finetune_from_model

    @property
    def counts_anew(self) -> bool:
        """Whether the restored model begins the plan from its first stage."""
        own = self.restore_file == _LAST and os.path.isfile(os.path.join(self.save_dir, _LAST))
        return bool(self.finetune_from_model) and not own


def depth_to_resume(path: str, side: str, plan: GrowthPlan, restoring: Restoring) -> int:
    """Layers of the growing stack in a checkpoint.

    Raises:
        UserError: the plan has another depth at the checkpoint's epoch or update; the message says both.
    """
    state = checkpoints.load_checkpoint(path, mapped=True)
    options = options_in(state)
    depth = options.get(f"{side}_layers")
    last = _last_number(state, plan, restoring)
    # At a border the checkpoint may have been grown already, by `fairseq-depthwise grow`.
    planned = [plan.stages[plan.stage_of(number)].layers for number in (max(last, 1), last + 1)]
    if depth not in planned:
        unit = "updates" if plan.in_updates else "epochs"
        given = stages_in(state)
        origin = f"was trained with --growth-stages {given[0]}" if given else "was not trained in stages"
        raise UserError(
            f"{path} has {depth} {side} layers after {last} {unit}, and --growth-stages {plan.text} has {planned[0]} "
            f"there; it {origin}; give the stages that fit, or another --save-dir"
        )
    return int(depth)


def stages_in(state: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """``--growth-stages``, ``-side`` and ``-strategy`` of the run that wrote a checkpoint; None for other runs."""
    task = (state.get("cfg") or {}).get("task")
    given = task if isinstance(task, Mapping) else vars(task) if task is not None else {}
    if not given.get("growth_stages"):
        return None
    return given["growth_stages"], given["growth_side"], given["growth_strategy"]


def last_epoch(state: Mapping[str, Any]) -> int:
    """The epoch that the last update before a checkpoint belongs to; 0 where there was none."""
    iterator = (state.get("extra_state") or {}).get("train_iterator") or {"epoch": 1, "iterations_in_epoch": 0}
    # At an epoch's end fairseq writes the number of the next.
    return int(iterator["epoch"]) - (1 if iterator.get("iterations_in_epoch", 0) == 0 else 0)


def _last_number(state: Mapping[str, Any], plan: GrowthPlan, restoring: Restoring) -> int:
    """Epochs or updates of the plan that are behind the checkpoint."""
    if restoring.counts_anew:
        return 0
    if plan.in_updates:
        return 0 if restoring.reset_optimizer else updates_in(state)
    return 0 if restoring.reset_dataloader else last_epoch(state)
