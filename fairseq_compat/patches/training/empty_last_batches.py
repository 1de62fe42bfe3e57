"""At the end of an epoch, an empty last batch of an update takes away the sentences before it from the update's size.

With ``--update-freq`` above 1, where the batches of an epoch are no multiple of the processes, fairseq fills the last
update of some of them with empty batches. It then counts nothing of what these processes have computed, so that the
gradient of all is divided by too little. Here a process leaves out its empty batches if it has others.
"""

import functools
from collections.abc import Iterator
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.Trainer.train_step

    @functools.wraps(original)
    def train_step(self: Any, samples: list[Any], *args: Any, **kwargs: Any) -> Any:
        filled = [sample for sample in samples if sample]
        # Where layers talk with other processes, all have to run as many batches as one another.
        if filled and not self.is_fsdp and not getattr(self.cfg.model, "base_layers", 0):
            samples = filled
        return original(self, samples, *args, **kwargs)

    module.Trainer.train_step = train_step
