"""Which errors are about too many open files, and their explanation."""

from __future__ import annotations

import errno
import resource

import pytest

from fairseq_compat import process as open_file_limit
from fairseq_compat.explanations import explain
from fairseq_compat.process import allow_more_open_files, explain_too_many_open_files

WORKER = "Caught OSError in DataLoader worker process 0.\nOriginal Traceback:\nOSError: [Errno 24] Too many open files"


@pytest.mark.parametrize(
    ("error", "undamaged"),
    [
        (OSError(errno.EMFILE, "Too many open files", "bin/train.en.idx"), "bin/train.en.idx is not damaged"),
        (OSError(errno.EMFILE, "Too many open files"), "no file is damaged"),
        (OSError(WORKER), "no file is damaged"),
        (RuntimeError("received 0 items of ancdata"), "no file is damaged"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("hard", "number", "enough"), [(4096, "4096", "16384"), (256, "256", "8192")])
def test_the_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, undamaged: str, hard: int, number: str, enough: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (99, hard))
    sentence = explain(error)
    assert sentence == explain_too_many_open_files(error)
    assert sentence is not None
    assert len(sentence.splitlines()) == 1
    assert undamaged in sentence
    assert number in sentence
    assert f"ulimit -n {enough}" in sentence


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no", "file"), RuntimeError("too many open files"), ValueError("[Errno 24]")]
)
def test_other_errors_are_not_about_it(error: Exception) -> None:
    assert explain_too_many_open_files(error) is None


@pytest.mark.parametrize(
    ("soft", "hard", "in_use", "raised"),
    [
        (100, 400, range(50), False),
        (100, 400, range(51), True),
        (100, 400, (*range(50), 51), True),
        (100, 100, range(99), False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, range(99), False),
        (100, resource.RLIM_INFINITY, range(60), True),
    ],
)
def test_when_the_limit_is_raised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, in_use: range, raised: bool
) -> None:
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: given.append(limits))
    monkeypatch.setattr(open_file_limit, "_is_open", lambda number: number in in_use)
    allow_more_open_files()
    assert given == ([(hard, hard)] if raised else [])


def test_a_system_that_refuses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 400))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(open_file_limit, "_is_open", lambda number: True)
    allow_more_open_files()
