"""A run that has reached ``--max-update`` or ran out of ``--patience`` goes on each time its command is repeated.

fairseq looks at the limits after an update, so whoever repeats a command until it succeeds, as after a kill, ends at
other weights than one who ran it once. Here the limits are looked at before an epoch begins as well.
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
        patience = cfg.checkpoint.patience
        if 0 < patience <= getattr(module.should_stop_early, "num_runs", 0):
            logger.info("nothing is left to train: the last %d validations, --patience, were no better", patience)
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    module.train = train
