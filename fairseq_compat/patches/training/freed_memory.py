"""On a CPU a step of training or of a beam search takes longer than it must.

Each operation maps its memory anew and gives it back, page by page (:mod:`fairseq_compat.process`). Here a command
that computes on a CPU keeps what it frees, from its start: every command of fairseq that loads a model passes through
``call_main``.
"""

import functools
from collections.abc import Iterator
from typing import Any

from fairseq_compat.process import keep_freed_memory


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.call_main

    @functools.wraps(original)
    def call_main(cfg: Any, main: Any, **kwargs: Any) -> Any:
        if cfg.common.cpu or not module.torch.cuda.is_available():
            keep_freed_memory()
        return original(cfg, main, **kwargs)

    module.call_main = call_main
