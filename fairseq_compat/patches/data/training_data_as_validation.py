"""With ``--valid-subset train`` the epochs count double, and a validation within an epoch breaks it off.

fairseq keeps one iterator for each data set, and so the validation moves the training's on. Here the validation on a
part that is trained on gets one of its own.
"""

import functools
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.Trainer.get_valid_iterator

    @functools.wraps(original)
    def get_valid_iterator(self: Any, subset: str, disable_iterator_cache: bool = False) -> Any:
        return original(self, subset, disable_iterator_cache or subset == self.cfg.dataset.train_subset)

    module.Trainer.get_valid_iterator = get_valid_iterator
