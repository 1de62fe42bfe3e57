"""Trainings in turns: who may go on when, and what is timed."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest
from results_commands import Workplace
from taking_turns import Turns, ring, turns

from fairseq_compat import UserError


def test_one_at_a_time_and_in_order(caplog: pytest.LogCaptureFixture) -> None:
    done: list[tuple[int, int]] = []
    inside = threading.Lock()

    def work(number: int, own: int, next: int) -> None:
        mine = Turns(own, next)
        for update in range(3):
            mine.begin()
            assert inside.acquire(blocking=False)
            done.append((update, number))
            time.sleep(0.01)
            inside.release()
        mine.end()

    caplog.set_level("INFO")
    with ring(3) as places:
        kept = [tuple(map(os.dup, ends)) for ends in places]
    threads = [threading.Thread(target=work, args=(number, *ends)) for number, ends in enumerate(kept)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    for end in (end for ends in kept for end in ends):
        os.close(end)
    assert done == [(update, number) for update in range(3) for number in range(3)]
    assert sum("turn 3 took 0.01" in message for message in caplog.messages) == 3


def test_a_process_that_ends_too_early_ends_the_ring() -> None:
    with ring(2) as places:
        own, next = map(os.dup, places[0])
    # The other one's ends are closed, as if it had ended before its first turn. The token of the start comes first.
    mine = Turns(own, next)
    with pytest.raises(UserError, match="another training of the ring has ended"):
        mine.begin()
    os.close(own)
    os.close(next)


def test_turns_of_a_log() -> None:
    log = "INFO | taking_turns | turn 1 took 0.500000 s\nelse\nINFO | taking_turns | turn 2 took 1.250000 s\n"
    assert turns(log) == [0.5, 1.25]
    with pytest.raises(UserError, match="all of its turns"):
        turns(log.partition("\n")[2])


def test_a_failing_training_is_named(tmp_path: Path) -> None:
    place = Workplace(tmp_path / "work", tmp_path, threads=1)
    good = "fairseq-depthwise train --no-such-option"
    with pytest.raises(UserError) as error:
        place.train_in_turns({"one": good, "two": good}, 3)
    assert re.match(r"a command ended with status \d: fairseq-depthwise train --no-such-option\n", str(error.value))
    assert not place.is_finished(good)
