"""The depth at which a growing run resumes: that of the checkpoint that fairseq is about to restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.layer_sources import STRATEGIES
from fairseq_depthwise.growth.stages import GrowthPlan

if TYPE_CHECKING:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

#: fairseq's default of ``--restore-file``: the newest checkpoint in the run's own folder, if there is one.
_LAST = "checkpoint_last.pt"


class Restored(NamedTuple):
    """The checkpoint that fairseq is going to restore, or None, and whether the run counts from 0 again."""

    path: str | None
    counts_anew: bool = False

    @classmethod
    def by(cls, options: Any) -> Restored:
        """Read the options that ``fairseq.checkpoint_utils.load_checkpoint`` reads.

        A file that does not exist is refused; fairseq itself may silently ignore it.
        """
        last_of_run = os.path.join(options.save_dir, _LAST)
        # In the order in which fairseq looks for them.
        for option, path in (
            ("--restore-file", options.restore_file if options.restore_file != _LAST else None),
            ("--save-dir", last_of_run if os.path.isfile(last_of_run) else None),
            ("--continue-once", options.continue_once),
            ("--finetune-from-model", options.finetune_from_model),
        ):
            if path is None:
                continue
            if not os.path.isfile(path):
                raise UserError(f"{option} {path}: there is no such file")
            return cls(path, option == "--finetune-from-model")
        return cls(None)


def depth_to_resume(checkpoint: Checkpoint, side: str, plan: GrowthPlan, options: Any, *, counts_anew: bool) -> int:
    """Return the number of layers of the growing stack in a checkpoint.

    Args:
        options: fairseq's ``reset_dataloader`` and ``reset_optimizer``.
        counts_anew: whether the run counts epochs and updates from 0 again.

    Raises:
        UserError: the plan has another depth at that point.
    """
    if plan.in_updates:
        last = 0 if counts_anew or options.reset_optimizer else checkpoint.updates
        following = last + 1
    elif counts_anew or options.reset_dataloader:
        last, following = 0, 1
    else:
        # In the middle of an epoch both are this epoch; at its end the next one follows.
        last, following = last_epoch(checkpoint.state), int(_iterator(checkpoint.state).get("epoch", 1))
    # At a stage boundary the checkpoint may have been grown already, by `fairseq-depthwise grow`.
    planned = [plan.depths[plan.stage_of(number)] for number in (max(last, 1), following)]
    depth = checkpoint.options.get(f"{side}_layers")
    if depth not in planned:
        raise UserError(
            f"{checkpoint.path} has {depth} {side} layers after {last} {'updates' if plan.in_updates else 'epochs'}, "
            f"and --growth-stages {plan.text} has {planned[0]} there; give the stages that fit, or begin elsewhere"
        )
    return int(depth)


def stages_in(state: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return ``--growth-stages``, ``-side`` and ``-strategy`` of a checkpoint's run; None for other runs."""
    options = checkpoints.options_in(state, "task")
    text = options.get("growth_stages")
    if not text or not isinstance(text, str):
        return None
    return text, options.get("growth_side", "encoder"), options.get("growth_strategy", STRATEGIES[0])


def last_epoch(state: Mapping[str, Any]) -> int:
    """Return the epoch of the last update before a checkpoint; 0 if there was none."""
    iterator = _iterator(state)
    # At the end of an epoch fairseq writes the number of the next one.
    return int(iterator.get("epoch", 1)) - (1 if iterator.get("iterations_in_epoch", 0) == 0 else 0)


def _iterator(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return (state.get("extra_state") or {}).get("train_iterator") or {}
