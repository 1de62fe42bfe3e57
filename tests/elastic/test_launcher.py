"""The options of ``train --elastic``: what is started, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.elastic.launcher import Launch, parse


def test_own_options_are_taken_out_wherever_they_are() -> None:
    words = "data --elastic --lr -1 --processes 2 --arch x --nodes=1:4 --rendezvous n0:29400"
    launch, rest = parse(words.split())
    assert launch == Launch(processes=2, nodes="1:4", rendezvous="n0:29400", max_restarts=3)
    assert rest == ["data", "--lr", "-1", "--arch", "x"]
    assert parse(["--elastic", "--max-restarts", "0", "--processes", "1"])[0] == Launch(1, "1:1", "", 0)


@pytest.mark.parametrize(
    "words",
    [
        "--processes 0",
        "--processes two",
        "--processes 99999999999999999999",
        "--max-restarts -1",
        "--max-restarts ''",
        "--nodes 0",
        "--nodes 4:1",
        "--nodes 1:",
        "--nodes 2",
        "--rendezvous node0",
        "--rendezvous :29400",
        "--rendezvous host:port",
        "--distributed-world-size 2",
        "--distributed-init-method=tcp://node0:1",
    ],
)
def test_bad_values_are_refused(words: str) -> None:
    name, value = words.replace("=", " ").replace("''", "").split(" ", 1)
    with pytest.raises(UserError, match=name if name.startswith("--distributed") else f"{name} {value} "):
        parse(["--elastic", *(word.strip("'") for word in words.split())])
