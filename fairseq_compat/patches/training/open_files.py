"""Training on some hundred directions stops with ``Too many open files``, though the system would allow more of them.

Every data file stays open while it is used, four for a language pair of each part. Usual is a soft limit of 1024 and a
much higher hard one, which any process may go up to. Here a process does so before it opens data once half of what the
soft limit allows is in use; the other half is for what else a run opens. Where even the hard limit does not suffice,
the message is not followed by fairseq's complaints about data that was opened by half.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_compat.process import allow_more_open_files


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.make_dataset

    @functools.wraps(original)
    def make_dataset(*args: Any, **kwargs: Any) -> Any:
        allow_more_open_files()
        return original(*args, **kwargs)

    module.make_dataset = make_dataset
    for kind in (module.MMapIndexedDataset, module.MMapIndexedDataset.Index):
        kind.__del__ = _if_opened(kind.__del__)


def _if_opened(close: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(close)
    def close_if_opened(self: Any) -> None:
        if hasattr(self, "_bin_buffer_mmap"):
            close(self)

    return close_if_opened
