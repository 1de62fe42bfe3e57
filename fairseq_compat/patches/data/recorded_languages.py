"""A training that takes its languages from the data folder does not record them, and its model is asked for others.

Translation in the other direction, or from a language that the model never saw, then runs without a word. Here the
languages that the task has found are recorded with the options.
"""

import functools
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.setup_task

    @functools.wraps(original)
    def setup_task(cfg: Any, **given: Any) -> Any:
        task = original(cfg, **given)
        for side in ("source_lang", "target_lang"):
            language = getattr(getattr(task, "cfg", None), side, None)
            if isinstance(language, str) and getattr(cfg, side, language) is None:
                setattr(cfg, side, language)
        return task

    module.setup_task = setup_task
