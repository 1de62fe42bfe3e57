"""The signals of a launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from fairseq_depthwise.elastic.agent import SIGNALS, Agent, install_signal_handlers


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Agent, "signaled", None)
    monkeypatch.setattr(Agent, "_grace", Agent._grace)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_counts_and_ctrl_c_after_it_is_impatience() -> None:
    install_signal_handlers()
    os.kill(os.getpid(), signal.SIGHUP)  # with nohup
    with pytest.raises(SignalException):
        os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)  # the same notice by another way
    assert Agent.signaled == signal.SIGUSR1
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert (Agent.signaled, Agent._grace) == (signal.SIGUSR1, 0)
