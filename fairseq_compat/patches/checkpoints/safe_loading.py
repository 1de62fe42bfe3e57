"""PyTorch 2.6 and newer refuse fairseq's checkpoints, older ones run whatever code is in them.

Inside ``fairseq.checkpoint_utils``, ``torch.load`` becomes :func:`fairseq_compat.checkpoints.load`, which allows
what a fairseq checkpoint needs and nothing else, on every PyTorch. The file is also checked to be a checkpoint of
fairseq, which otherwise ends in ``KeyError: 'best_loss'``.
"""

import functools
from collections.abc import Iterator
from typing import IO, Any

from fairseq_compat.errors import UserError, first_line
from fairseq_compat.patching import Overlay


def adjust(module: Any) -> Iterator[None]:
    yield

    from fairseq_compat import checkpoints

    def load(file: IO[bytes], map_location: Any = "cpu") -> Any:
        state = checkpoints.load(file)
        checkpoints.require_checkpoint(state, getattr(file, "name", "the checkpoint"))
        return state

    original = module.load_checkpoint_to_cpu

    @functools.wraps(original)
    def load_checkpoint_to_cpu(path: str, *args: Any, **given: Any) -> Any:
        try:
            return original(path, *args, **given)
        except (LookupError, TypeError) as error:  # while the record of an older version is brought up to date
            reason = f"has no {error}" if isinstance(error, KeyError) else f"is damaged: {first_line(error)}"
            raise UserError(f"{path} cannot be loaded: its record of the training {reason}") from error

    module.torch = Overlay(module.torch, load=load)
    module.load_checkpoint_to_cpu = load_checkpoint_to_cpu
