"""The options of ``train --elastic``: what is started, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.elastic.launcher import parse


def test_own_options_are_taken_out_wherever_they_are() -> None:
    words = "data --elastic --lr -1 --processes 2 --arch x --nodes=1:4 --rendezvous n0:29400"
    launch, rest = parse(words.split())
    assert (launch.processes, launch.nodes, launch.rendezvous, launch.max_restarts) == (2, "1:4", "n0:29400", 3)
    assert rest == ["data", "--lr", "-1", "--arch", "x"]


@pytest.mark.parametrize("words", ["--processes 0", "--processes -1", "--max-restarts -1"])
def test_numbers_that_start_nothing(words: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["--elastic", *words.split()])


def test_several_machines_need_a_place_to_meet() -> None:
    with pytest.raises(UserError, match="--nodes 2"):
        parse(["--elastic", "--nodes", "2"])
