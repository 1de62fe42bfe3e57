"""A checkpoint that is not there: a training starts from nothing, and one line of the log among hundreds says so.

fairseq does so for ``--restore-file`` and ``--continue-once``; for ``--finetune-from-model`` it raises. Here all are
refused, but for a file in the training's own ``--save-dir``: commands name ``checkpoint_last.pt`` there to go on
from, and at their first start there is none.
"""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_compat.errors import UserError

_DEFAULT = "checkpoint_last.pt"


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.load_checkpoint

    @functools.wraps(original)
    def load_checkpoint(cfg: Any, trainer: Any, **given: Any) -> Any:
        if trainer.is_data_parallel_master:  # the one process that reads it; others may see other disks
            _require_checkpoint(cfg, trainer.checkpoint_suffix or "", module.PathManager.exists)
        return original(cfg, trainer, **given)

    module.load_checkpoint = load_checkpoint


def _require_checkpoint(cfg: Any, suffix: str, exists: Callable[[str], bool]) -> None:
    own = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    if cfg.restore_file != _DEFAULT:
        option, path = "--restore-file", cfg.restore_file
        found = exists(path.replace(".pt", f"{suffix}.pt"))
    elif getattr(cfg, "continue_once", None) is not None and not exists(own):
        option, path = "--continue-once", cfg.continue_once
        found = exists(path)
    else:
        return
    if not found and os.path.realpath(os.path.dirname(path)) != os.path.realpath(cfg.save_dir):
        raise UserError(
            f"{option} {path} does not exist; give a checkpoint that does, or leave the option out: a training goes on "
            f"from {own} by itself"
        )
