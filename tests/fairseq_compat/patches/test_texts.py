"""Patches of texts: the same lines for every reader, and what is refused."""

from __future__ import annotations

import io
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from fairseq import file_chunker_utils
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset, dictionary

from fairseq_compat import UserError

TEXT = "\ufeffa \rb\r\n\n  \u00e4\u2028c\u0085d \ne".encode()
LINES = ["a \rb", "", "\u00e4\u2028c\u0085d", "e"]


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("from_stdin", [False, True])
def test_lines_end_at_line_feeds_only(
    from_stdin: bool, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairseq_cli.interactive import buffered_read

    (tmp_path / "text").write_bytes(TEXT)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT), encoding="latin-1"))
    buffers = list(buffered_read("-" if from_stdin else str(tmp_path / "text"), size))
    assert buffers == [LINES[start : start + size] for start in range(0, len(LINES), size)]
    (tmp_path / "latin").write_bytes(b"a\n\xe4b\n")
    with pytest.raises(UserError, match=r"latin is not UTF-8: line 2 has the byte 0xe4"):
        list(buffered_read(str(tmp_path / "latin"), 1))


# Parts of a text, as several processes read it.


@pytest.mark.parametrize("parts", range(1, 9))
def test_each_line_is_in_one_part(parts: int, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(TEXT)
    offsets = file_chunker_utils.find_offsets(str(path), parts)
    assert len(offsets) == parts + 1
    lines = []
    for start, end in pairwise(offsets):
        with file_chunker_utils.Chunker(str(path), start, end) as part:
            lines += [line.strip() for line in part]
    assert lines == LINES


def test_an_error_in_a_part_has_the_number_of_the_line_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"a\n" * 9 + b"\xe4\n")
    start = file_chunker_utils.find_offsets(str(path), 2)[1]
    assert 0 < start < 18
    part = file_chunker_utils.Chunker(str(path), start, 20)
    with part, pytest.raises(UserError, match=r"line 10 has the byte 0xe4"):
        list(part)


def test_data_whose_sides_have_different_length() -> None:
    sides = [ListDataset([torch.tensor([4, 2])] * count, [2] * count) for count in (2, 3)]
    source, target = sides
    with pytest.raises(UserError, match="2 sentences in the source and 3 in the target"):
        LanguagePairDataset(source, source.sizes, Dictionary(), target, target.sizes, Dictionary())
    LanguagePairDataset(source, source.sizes, Dictionary())


def interrupts(*_: object) -> bool:
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def lose_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_are_not_interrupted_and_a_lost_one_is_an_error() -> None:
    workers = dictionary.Pool(processes=1)
    assert workers.apply_async(interrupts).get() is False
    lost = workers.apply_async(lose_process)
    workers.close()
    workers.join()
    with pytest.raises(UserError, match="--workers"):
        lost.get()
