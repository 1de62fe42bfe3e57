"""A process of elastic training, which ends after the same update as the others, and when its launcher ends."""

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

#: Environment variable of a launcher's processes: the launcher's process id.
ELASTIC = "FAIRSEQ_DEPTHWISE_ELASTIC"

#: Exit statuses: argparse's for a wrong option, and "try again" of sysexits.h.
PERMANENT, TRY_AGAIN = 2, 75

#: Linux: the option of prctl that names the signal which a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1

#: Key in the processes' store: the number of the update after which all of them end.
_LAST_UPDATE = "fairseq_depthwise/last_update"


def is_elastic_worker() -> bool:
    """Return whether the launcher of elastic training started this process."""
    return ELASTIC in os.environ and "RANK" in os.environ


def train() -> int:
    """Run ``fairseq-train`` with the options of ``sys.argv``; return the exit status."""
    # Imported here: the first needs PyTorch and the others fairseq, and a launcher imports this module without both.
    from torch.distributed.elastic.multiprocessing.errors import record

    from fairseq_compat.patches import training
    from fairseq_depthwise.elastic import batches

    _end_with_launcher()
    # Seconds for which a file server may hold the lock of a process on a lost machine.
    training.LOCK_TIMEOUT = 120.0
    command = importlib.import_module("fairseq_cli.train")
    batches.share_updates(command)
    ending = Ending(command)
    try:
        # Without the wrapper that handles errors in fairseq-train, whose only status is 1; `record` tells the launcher.
        record(command.cli_main.__wrapped__)()
    except Exception as error:
        if mistake(error) is None:
            raise
        return PERMANENT
    finally:
        # Processes that load data ignore SIGTERM, which is how Python would end them.
        for loader in multiprocessing.active_children():
            loader.kill()
    return TRY_AGAIN if ending.ended else 0


def _end_with_launcher() -> None:
    """Let Linux kill this process when its launcher ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        launcher_ended_before = not os.path.exists(f"/proc/{os.environ[ELASTIC]}")
        if launcher_ended_before:
            sys.exit(TRY_AGAIN)


class Ending:
    """Saves a checkpoint and ends ``fairseq_cli.train`` when one of its processes got SIGTERM or SIGUSR1.

    All processes must end after the same update. The first that receives a signal writes into the processes' store the
    number of the update that it is about to compute. The others look there after each update; an update ends for all
    together, hence after that write.
    """

    def __init__(self, command: Any) -> None:
        from torch.utils import data

        self.ended = False
        self._requested = False
        self._updates = 0
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._request)

        # fairseq creates its data loaders by this name.
        @replaces(data, "DataLoader")
        def data_loader(original: Any, *args: Any, **options: Any) -> Any:
            return original(*args, **{"worker_init_fn": _ignore_sigterm, **options})

        @replaces(command, "validate_and_save")
        def validate_and_save(
            original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, valid_subsets: Any, end_of_epoch: bool
        ) -> Any:
            losses, should_stop = original(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch)
            is_last = self._is_last_update()
            # Between epochs fairseq takes the learning rate's step; the next update is early enough.
            if not is_last or should_stop or end_of_epoch:
                return losses, should_stop
            command.checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            logger.info("ends after %d updates, as a process was asked to", trainer.get_num_updates())
            self.ended = True
            return losses, True

    def _request(self, *signal_and_frame: object) -> None:
        self._requested = True

    def _is_last_update(self) -> bool:
        """Return whether this update is the last; called once after each update."""
        from torch import distributed

        self._updates += 1
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return self._requested
        store = distributed.distributed_c10d._get_default_store()
        if self._requested:
            # Writes only where no process has written before.
            store.compare_set(_LAST_UPDATE, "", str(self._updates + 1))
        return store.check([_LAST_UPDATE]) and self._updates >= int(store.get(_LAST_UPDATE))


def _ignore_sigterm(worker: int) -> None:
    """Let a process that loads data outlive the SIGTERM that a scheduler sends to all: it is needed to save."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
