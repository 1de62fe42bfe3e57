"""A checkpoint does not say which versions wrote it, so nobody can tell whether another version explains a difference.

Here every checkpoint of a training has them in its ``extra_state``, as plain text, which weights-only loading admits.
"""

import functools
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat import versions

    original = module.Trainer.state_dict

    @functools.wraps(original)
    def state_dict(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original(self)
        state["extra_state"]["versions"] = versions.recorded_versions()
        return state

    module.Trainer.state_dict = state_dict
