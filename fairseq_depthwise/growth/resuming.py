"""At which depth a growing run goes on: that of the checkpoint which fairseq is about to restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.growth.layer_sources import STRATEGIES
from fairseq_depthwise.growth.stages import GrowthPlan

#: fairseq's default of ``--restore-file``: the newest checkpoint of the run's own folder, where there is one.
_LAST = "checkpoint_last.pt"


class Restored(NamedTuple):
    """The checkpoint that fairseq is going to restore, or None, and whether it begins the plan from its first stage."""

    path: str | None
    counts_anew: bool = False

    @classmethod
    def by(cls, options: Any) -> Restored:
        """Read the options that ``fairseq.checkpoint_utils.load_checkpoint`` reads.

        A file that does not exist is refused, which fairseq itself may pass over in silence.
        """
        own = os.path.join(options.save_dir, _LAST)
        given = {
            "--restore-file": options.restore_file if options.restore_file != _LAST else None,
            "--save-dir": own if os.path.isfile(own) else None,
            "--continue-once": options.continue_once,
            "--finetune-from-model": options.finetune_from_model,
        }
        option, path = next(((option, path) for option, path in given.items() if path is not None), ("", None))
        if path is not None and not os.path.isfile(path):
            raise UserError(f"{option} {path}: there is no such file")
        return cls(path, option == "--finetune-from-model")


def depth_to_resume(restored: Restored, state: Mapping[str, Any], side: str, plan: GrowthPlan, options: Any) -> int:
    """Return the number of layers of the growing stack in a checkpoint, which is what the plan has at that place.

    ``options``: ``reset_dataloader`` and ``reset_optimizer`` say whether epochs and updates are counted anew.
    """
    # At a stage boundary the checkpoint may have been grown already, by `fairseq-depthwise grow`.
    if plan.in_updates:
        last = 0 if restored.counts_anew or options.reset_optimizer else checkpoints.updates_in(state)
        following = last + 1
    elif restored.counts_anew or options.reset_dataloader:
        last, following = 0, 1
    else:
        last, following = last_epoch(state), int(_iterator(state).get("epoch", 1))
    planned = [plan.depths[plan.stage_of(number)] for number in (max(last, 1), following)]
    depth = checkpoints.options_in(state).get(f"{side}_layers")
    if depth not in planned:
        raise UserError(
            f"{restored.path} has {depth} {side} layers after {last} {'updates' if plan.in_updates else 'epochs'}, and "
            f"--growth-stages {plan.text} has {planned[0]} there; give the stages that fit, or begin elsewhere"
        )
    return int(depth)


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
    return (state.get("extra_state") or {}).get("train_iterator") or {}
