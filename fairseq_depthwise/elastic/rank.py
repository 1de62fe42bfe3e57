"""What a process of an elastic training does beyond training."""

from __future__ import annotations

import ctypes
import importlib
import logging
import multiprocessing
import os
import signal
import sys
from typing import Any

from fairseq_compat.errors import mistake
from fairseq_compat.patching import replaces

logger = logging.getLogger(__name__)

ELASTIC = "FAIRSEQ_DEPTHWISE_ELASTIC"  # in the environment of a launcher's processes: its process id

PERMANENT, TRY_AGAIN = 2, 75  # exit statuses: argparse's for a wrong option, and sysexits' for "try again"
_PR_SET_PDEATHSIG = 1  # of prctl, Linux
_LAST_UPDATE = "fairseq_depthwise/last_update"  # in the processes' store: the update after which all of them end


def is_rank() -> bool:
    """Return whether a launcher started this process."""
    return ELASTIC in os.environ and "RANK" in os.environ


def train() -> int:
    """Run ``fairseq-train`` with the options of ``sys.argv``; return the exit status."""
    from torch.distributed.elastic.multiprocessing.errors import record

    from fairseq_compat.patches import training  # with PyTorch, and the next with fairseq, which no launcher needs
    from fairseq_depthwise.elastic import batches

    if sys.platform == "linux":  # the system kills this process when its launcher ends, however that ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if not os.path.exists(f"/proc/{os.environ[ELASTIC]}"):  # it ended before
            sys.exit(TRY_AGAIN)
    training.PATIENCE = 120.0  # seconds for which a file server may hold the lock of a process on a lost machine
    command = importlib.import_module("fairseq_cli.train")
    batches.share_updates(command)
    ending = Ending(command)
    try:
        # Without fairseq-train's own handler, which knows no status but 1; record tells the launcher.
        record(command.cli_main.__wrapped__)()
    except Exception as error:
        if mistake(error) is None:
            raise
        return PERMANENT
    finally:
        for reader in multiprocessing.active_children():  # which would not hear how Python ends them
            reader.kill()
    return TRY_AGAIN if ending.ended else 0


class Ending:
    """Saves a checkpoint and ends ``fairseq_cli.train`` when one of its processes got SIGTERM or SIGUSR1.

    The first that was asked to end writes into the processes' store the number of the update that it is about to
    compute; the others look there after each update, hence after that write, and all end after the same update.
    """

    def __init__(self, command: Any) -> None:
        from torch.utils import data

        self.ended, self._requested, self._updates = False, False, 0
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._request)

        @replaces(data, "DataLoader")  # fairseq makes them by this name
        def reading(original: Any, *args: Any, **options: Any) -> Any:
            return original(*args, **{"worker_init_fn": _ignore_end, **options})

        @replaces(command, "validate_and_save")
        def validate_and_save(
            original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, valid_subsets: Any, end_of_epoch: bool
        ) -> Any:
            losses, should_stop = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
            due = self._is_due()
            # Between epochs fairseq takes the learning rate's step; the next update is early enough.
            if not due or should_stop or end_of_epoch:
                return losses, should_stop
            command.checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            logger.info("ends after %d updates, as a process was asked to", trainer.get_num_updates())
            self.ended = True
            return losses, True

    def _request(self, *received: object) -> None:
        self._requested = True

    def _is_due(self) -> bool:
        from torch import distributed

        self._updates += 1
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return self._requested
        store = distributed.distributed_c10d._get_default_store()
        if self._requested:
            store.compare_set(_LAST_UPDATE, "", str(self._updates + 1))  # only the first time
        return store.check([_LAST_UPDATE]) and self._updates >= int(store.get(_LAST_UPDATE))


def _ignore_end(worker: int) -> None:
    """Let a process that loads data outlive the SIGTERM that a scheduler sends to all: it is needed to save."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
