"""Generation with a model that diverged in training ends in ``AssertionError: 10 < 10``.

Here fairseq's commands look at a model's parameters once, after loading it, and say in one sentence which are not
numbers. Training reads checkpoints in another way and is not concerned.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat.finite import require_finite

    original = module.load_model_ensemble_and_task

    @functools.wraps(original)
    def load_model_ensemble_and_task(filenames: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        loaded = original(filenames, *args, **kwargs)
        for name, model in zip(filenames, loaded[0], strict=True):
            require_finite(model.named_parameters(), name)
        return loaded

    module.load_model_ensemble_and_task = load_model_ensemble_and_task
