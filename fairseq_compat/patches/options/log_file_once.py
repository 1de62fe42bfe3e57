"""With ``--log-file`` each epoch writes its lines once more than the epoch before.

fairseq opens the file anew, and adds it to its log, for every bar of progress: two in an epoch, one for training and
one for each validation set. A log of 20 epochs has most of its lines many times over. Here a bar whose file is open
already is made without one.
"""

import functools
import logging
import os
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.progress_bar

    @functools.wraps(original)
    def progress_bar(*args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
        if log_file is not None and _is_open(module.logger, log_file):
            log_file = None
        return original(*args, log_file=log_file, **kwargs)

    module.progress_bar = progress_bar


def _is_open(logger: logging.Logger, path: str) -> bool:
    path = os.path.abspath(path)
    return any(isinstance(handler, logging.FileHandler) and handler.baseFilename == path for handler in logger.handlers)
