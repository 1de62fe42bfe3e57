"""Two trainings in one ``--save-dir`` overwrite each other's checkpoints, and neither says so.

Whoever starts a command twice, or forgets to name another folder, ends with files that belong to no run. Here the
first process of a training locks its folder before anything is written, and a second one is refused. A training with
``--no-save`` writes nothing and locks nothing.
"""

import functools
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from fairseq_compat.folder_lock import locked_folder


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.main

    @functools.wraps(original)
    def main(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(cfg, Namespace):
            cfg = module.convert_namespace_to_omegaconf(cfg)
        if cfg.checkpoint.no_save or not module.distributed_utils.is_master(cfg.distributed_training):
            return original(cfg, *args, **kwargs)
        with locked_folder(cfg.checkpoint.save_dir, "--save-dir"):
            return original(cfg, *args, **kwargs)

    module.main = main
