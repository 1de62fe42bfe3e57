"""The signals of a launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from fairseq_depthwise.elastic.agent import SIGNALS, Interruption


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_counts_and_ctrl_c_after_it_is_impatience() -> None:
    interruption = Interruption()
    interruption.listen()
    with pytest.raises(SignalException):
        os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)  # the same notice by another way
    assert (interruption.number, interruption.impatient) == (signal.SIGUSR1, False)
    os.kill(os.getpid(), signal.SIGINT)
    assert (interruption.number, interruption.impatient) == (signal.SIGUSR1, True)


def test_what_nohup_ignores_stays_ignored() -> None:
    interruption = Interruption()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for _ in range(2):  # PyTorch handles it in between
        interruption.listen()
        os.kill(os.getpid(), signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    assert interruption.number is None
