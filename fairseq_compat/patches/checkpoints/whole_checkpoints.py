"""A kill or a full disk during saving leaves half a ``checkpoint_last.pt``, the file that a restart reads.

fairseq writes the first file of a save aside and renames it without flushing, then copies it in place to
``checkpoint_best.pt`` and ``checkpoint_last.pt``. Here every one of them is written aside, flushed and renamed.
"""

import logging
import os
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError

logger = logging.getLogger(__name__)

#: Passing failures of network file systems are why fairseq tries three times; each try here starts a fresh file.
TRIES = 3


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat import checkpoints, files

    original_save = module.torch_persistent_save
    original_paths = module.PathManager

    def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
        if async_write or not original_paths.supports_rename(filename):
            original_save(obj, filename, async_write=async_write)  # a remote store has its own rules
            return
        for tries_left in reversed(range(TRIES)):
            try:
                checkpoints.save(obj, filename)
                return
            except UserError:
                raise
            except Exception:
                if not tries_left:
                    raise
                logger.warning("saving %s failed, trying again", filename, exc_info=True)

    class PathManager(original_paths):  # type: ignore[misc, valid-type]  # a base known at run time
        @staticmethod
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
            if not original_paths.supports_rename(dst_path):
                return bool(original_paths.copy(src_path, dst_path, overwrite=overwrite))
            files.copied_whole(src_path, dst_path)
            return os.path.exists(dst_path)

    module.torch_persistent_save = torch_persistent_save
    module.PathManager = PathManager
