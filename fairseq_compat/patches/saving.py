"""Patches for saving: after which updates a training validates and saves, and which checkpoints it keeps.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

from fairseq_compat.patching import patch, replaces

logger = logging.getLogger("fairseq.checkpoint_utils")  # the log lines replace fairseq's own

#: Key of a checkpoint's ``extra_state``: the score at the end of an epoch; None if no validation was due.
SCORE_OF_EPOCH = "score_of_epoch"

#: Key of a checkpoint's ``extra_state``: which scores are the best, such as ``lowest loss``.
KIND_OF_SCORE = "kind_of_score"

#: Whether the present or last validation was due by the options, and not only because the run stops.
_validation = SimpleNamespace(is_due=True)


@patch("fairseq_cli.train")
def follow_validation_and_save_intervals(module: Any) -> None:
    """A stopped run validates once more, which counts for ``--patience``; some multiples of an interval are not saved.

    Here a validation that is due only because a run stops within an epoch is not counted, so that the resumed run ends
    where an uninterrupted one does. Multiples of ``--save-interval-updates`` before ``--validate-after-updates`` are
    saved, too.
    """

    @replaces(module, "validate_and_save")
    def validate_and_save(
        original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, valid_subsets: Any, end_of_epoch: bool
    ) -> Any:
        # fairseq's conditions for a validation (do_validate), without should_stop.
        updates, epoch = trainer.get_num_updates(), epoch_itr.epoch
        saves = is_multiple(updates, cfg.checkpoint.save_interval_updates)
        ends = end_of_epoch and is_multiple(epoch, cfg.dataset.validate_interval)
        within = is_multiple(updates, cfg.dataset.validate_interval_updates) or (saves and not end_of_epoch)
        _validation.is_due = ends or within
        losses, should_stop = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
        # fairseq's condition for saving leaves out updates before --validate-after-updates.
        is_saved = should_stop or (end_of_epoch and is_multiple(epoch, cfg.checkpoint.save_interval))
        if saves and not is_saved and updates < cfg.dataset.validate_after_updates:
            module.checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        return losses, should_stop

    @replaces(module, "should_stop_early")
    def should_stop_early(original: Any, cfg: Any, valid_loss: float | None) -> bool:
        if valid_loss is not None and not math.isfinite(valid_loss):
            # NaN as the first score would count as the best forever.
            valid_loss = -math.inf if cfg.checkpoint.maximize_best_checkpoint_metric else math.inf
        return _validation.is_due and original(cfg, valid_loss)


def is_multiple(number: int, interval: int) -> bool:
    """Return whether a number is a multiple of an interval, both above 0."""
    return interval > 0 and number > 0 and number % interval == 0


@patch("fairseq.checkpoint_utils", function="save_checkpoint")
def keep_requested_checkpoints(original: Any, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> None:
    """``--keep-best-checkpoints N`` keeps fewer than N, and ``--save-interval-updates`` leaves out ends of epochs.

    A model is kept only if it is better than the worst one, even while there are fewer than N; models with equal scores
    can have the same name, scores below 0 are not read back, and nothing is better than NaN. Here N are kept, every
    multiple of the interval is saved, and a model without a finite score is never the best.
    """
    from fairseq import checkpoint_utils

    # One process makes the folder; others may save their shards in it.
    if trainer.data_parallel_rank == 0:
        os.makedirs(cfg.save_dir, exist_ok=True)
    score = val_loss if val_loss is not None and math.isfinite(val_loss) else None  # nothing is better than NaN
    # fairseq stores the best score as an attribute of its function, and reads it in several places.
    best = getattr(checkpoint_utils.save_checkpoint, "best", None)
    is_best = score is not None and (best is None or _is_as_good(score, best, cfg))
    if is_best:
        checkpoint_utils.save_checkpoint.best = score
    if cfg.no_save:
        return
    # All processes must take part in gathering sharded state, even those that save nothing.
    trainer.consolidate_optimizer()
    if not trainer.should_save_checkpoint_on_current_rank:
        if trainer.always_call_state_dict_during_save_checkpoint:
            trainer.state_dict()
        return

    started = time.perf_counter()
    epoch, updates, suffix = epoch_itr.epoch, trainer.get_num_updates(), trainer.checkpoint_suffix
    logger.info("Preparing to save checkpoint for epoch %d @ %d updates", epoch, updates)
    names = _list_due_names(cfg, epoch_itr, updates, suffix, score, is_best=is_best)
    if not names:
        return

    extra_state = {"train_iterator": epoch_itr.state_dict(), "val_loss": val_loss}
    extra_state[SCORE_OF_EPOCH] = val_loss if _validation.is_due else None
    extra_state[KIND_OF_SCORE] = describe_best_score(cfg)
    if hasattr(checkpoint_utils.save_checkpoint, "best"):
        extra_state["best"] = checkpoint_utils.save_checkpoint.best
    # As fairseq does: written once, and then copied.
    first, *copies = [os.path.join(cfg.save_dir, f"{name}{suffix}.pt") for name in names]
    trainer.save_checkpoint(first, extra_state)
    for path in copies:
        checkpoint_utils.PathManager.copy(first, path, overwrite=True)
    message = "Saved checkpoint %s (epoch %d @ %d updates, score %s) (writing took %s seconds)"
    logger.info(message, first, epoch, updates, val_loss, time.perf_counter() - started)
    _remove_outdated(cfg, suffix, epoch, updates)


def _list_due_names(
    cfg: Any, epoch_itr: Any, updates: int, suffix: str, score: float | None, *, is_best: bool
) -> list[str]:
    """Return the names, without ``.pt``, of the checkpoints that are due after an update.

    ``checkpoint_last``, from which a run resumes, is written last: if the run is killed before, it is still that of an
    earlier update, and a restart writes all of them again.
    """
    epoch, names = epoch_itr.epoch, []
    if epoch_itr.end_of_epoch() and not cfg.no_epoch_checkpoints and is_multiple(epoch, cfg.save_interval):
        names.append(f"checkpoint{epoch}")
    if is_multiple(updates, cfg.save_interval_updates):
        names.append(f"checkpoint_{epoch}_{updates}")
    if is_best:
        names.append("checkpoint_best")
    if score is not None and _is_among_best(score, cfg, suffix):
        # The number of updates distinguishes models with equal scores.
        names.append(f"checkpoint.best_{cfg.best_checkpoint_metric}_{score:.3f}{updates}")
    if not cfg.no_last_checkpoints:
        names.append("checkpoint_last")
    return names


def get_patience_counts() -> dict[str, Any]:
    """Return the attributes of ``should_stop_early`` of the running ``fairseq-train``, ``num_runs`` and ``best``.

    fairseq keeps its count of validations without improvement in them. In other programs the dictionary is empty.
    """
    return vars(getattr(sys.modules.get("fairseq_cli.train"), "should_stop_early", lambda: None))


def describe_best_score(cfg: Any) -> str:
    """Return which scores are the best by the options of checkpoints, such as ``lowest loss``."""
    return f"{'highest' if cfg.maximize_best_checkpoint_metric else 'lowest'} {cfg.best_checkpoint_metric}"


def _is_as_good(score: float, other: float, cfg: Any) -> bool:
    return score >= other if cfg.maximize_best_checkpoint_metric else score <= other


def _is_among_best(score: float, cfg: Any, suffix: str) -> bool:
    """Return whether a model with this score, rounded as in file names, is among the best that are kept."""
    if cfg.keep_best_checkpoints <= 0:
        return False
    # File names have three decimals: compare equally rounded scores.
    best = _list_best_first(cfg, suffix)
    if len(best) < cfg.keep_best_checkpoints:
        return True
    worst, _, _ = best[cfg.keep_best_checkpoints - 1]
    return _is_as_good(float(f"{score:.3f}"), worst, cfg)


def _list_best_first(cfg: Any, suffix: str) -> list[tuple[float, int, str]]:
    """Return score, number of updates and path of all models kept as the best, the best and newest first."""
    metric = re.escape(cfg.best_checkpoint_metric)
    # checkpoint.best_loss_4.3211500.pt: the score has three decimals, and the number of updates follows. In names
    # that fairseq wrote, a random number follows, or nothing.
    files = _match_files(cfg.save_dir, rf"checkpoint\.best_{metric}_(-?\d+\.\d{{3}})(\d*){re.escape(suffix)}\.pt")
    scored = [(float(match[1]), int(match[2] or 0), path) for match, path in files]
    sign = -1 if cfg.maximize_best_checkpoint_metric else 1
    return sorted(scored, key=lambda model: (sign * model[0], -model[1]))


def _remove_outdated(cfg: Any, suffix: str, epoch: int, updates: int) -> None:
    """Remove checkpoints beyond the numbers to keep.

    Checkpoints of later epochs and updates than the present belong to another run; they are not counted or removed.
    """
    end = rf"{re.escape(suffix)}\.pt"
    outdated = []
    if cfg.keep_interval_updates > 0:
        saved = _list_newest_first(cfg.save_dir, rf"checkpoint_\d+_(\d+){end}", updates)
        pattern = cfg.keep_interval_updates_pattern  # multiples of it are kept; -1 for none
        removable = [path for number, path in saved if pattern == -1 or number % pattern != 0]
        outdated += removable[cfg.keep_interval_updates :]
    if cfg.keep_last_epochs > 0:
        epochs = _list_newest_first(cfg.save_dir, rf"checkpoint(\d+){end}", epoch)
        outdated += [path for _, path in epochs[cfg.keep_last_epochs :]]
    if cfg.keep_best_checkpoints > 0:
        outdated += [path for _, _, path in _list_best_first(cfg, suffix)[cfg.keep_best_checkpoints :]]
    for path in outdated:
        os.remove(path)


def _list_newest_first(folder: str, pattern: str, newest: int) -> list[tuple[int, str]]:
    """Return number and path of the checkpoints up to number ``newest`` that match a pattern, the newest first."""
    numbered = [(int(match[1]), path) for match, path in _match_files(folder, pattern)]
    return sorted((checkpoint for checkpoint in numbered if checkpoint[0] <= newest), reverse=True)


def _match_files(folder: str, pattern: str) -> list[tuple[re.Match[str], str]]:
    """Return the matches of a pattern with the names in a folder, and the paths of these files."""
    matches = [re.fullmatch(pattern, name) for name in os.listdir(folder)]
    return [(match, os.path.join(folder, match[0])) for match in matches if match is not None]
