"""Under ``python -O`` a training writes no ``checkpoint_last.pt``, so that a killed run starts from nothing.

fairseq copies the first file of a save to the others within an assertion, and Python leaves assertions out with ``-O``
or ``PYTHONOPTIMIZE``. Here a training that saves is refused then.
"""

from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import check_before_training


def adjust(module: Any) -> Iterator[None]:
    yield

    def check(cfg: Any) -> None:
        if not __debug__ and not cfg.checkpoint.no_save:
            raise UserError(
                "fairseq copies checkpoints within assertions, which Python leaves out under -O and PYTHONOPTIMIZE; "
                "train without these"
            )

    check_before_training(module, check)
