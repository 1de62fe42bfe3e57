"""A checkpoint that is not there, or is no file: a training starts from nothing, and one line of the log says so.

fairseq does so where ``--restore-file``, ``--continue-once`` or ``--finetune-from-model`` names a folder or a device,
and for the first two where there is nothing at all. Here all are refused, but for a file that is missing in the
training's own ``--save-dir``: commands name ``checkpoint_last.pt`` there to go on from, and at their first start there
is none.
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
            _require_checkpoint(cfg, trainer.checkpoint_suffix or "", module.PathManager.isfile)
        return original(cfg, trainer, **given)

    module.load_checkpoint = load_checkpoint


def _require_checkpoint(cfg: Any, suffix: str, is_file: Callable[[str], bool]) -> None:
    own = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    finetuned = getattr(cfg, "finetune_from_model", None)
    if cfg.restore_file != _DEFAULT:
        if finetuned:
            raise UserError(
                f"--finetune-from-model {finetuned} and --restore-file {cfg.restore_file} are two beginnings of one "
                "training; leave one of them out"
            )
        option, path = "--restore-file", cfg.restore_file
        read = path.replace(".pt", f"{suffix}.pt")
    elif is_file(own):
        return
    elif os.path.lexists(own):
        raise UserError(f"{own} is {_kind_of(own)}, and a training goes on from the file of this name; move it away")
    elif getattr(cfg, "continue_once", None) is not None:
        option, path = "--continue-once", cfg.continue_once
        read = path
    elif finetuned is not None:
        option, path = "--finetune-from-model", finetuned
        read = path
    else:
        return
    if is_file(read):
        return
    advice = f"or leave the option out: a training goes on from {own} by itself"
    if not path or os.path.lexists(read):
        raise UserError(f"{option} {path or repr(path)} is {_kind_of(path)}; give a checkpoint, {advice}")
    if os.path.realpath(os.path.dirname(path)) != os.path.realpath(cfg.save_dir):
        raise UserError(f"{option} {path} does not exist; give a checkpoint that does, {advice}")


def _kind_of(path: str) -> str:
    """Return what is there in the place of a file, in words."""
    if not path:
        return "empty"
    if os.path.isdir(path):
        return "a folder"
    return "a link to nothing" if not os.path.exists(path) else "no ordinary file"
