"""A run that has reached ``--max-update`` takes one more update each time its command is repeated.

fairseq looks at the limit after an update, so whoever repeats a command until it succeeds, as after a kill, ends at
other weights than one who ran it once. Here the limit is looked at before an epoch begins as well.
"""

import logging
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger(__name__)


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.train

    def train(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        limit = cfg.optimization.max_update
        if limit and trainer.get_num_updates() >= limit:
            logger.info("nothing is left to train: %d updates are done, and --max-update is %d",
                        trainer.get_num_updates(), limit)  # fmt: skip
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    module.train = train
