"""``fairseq-interactive`` reads lines that end at line feeds, and UTF-8 whatever the locale."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_compat import UserError

TEXT = "\ufeffa \rb\r\n\n  \u00e4\u2028c\u0085d \ne".encode()
LINES = ["a \rb", "", "\u00e4\u2028c\u0085d", "e"]


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("from_stdin", [False, True])
def test_lines_in_buffers(from_stdin: bool, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairseq_cli.interactive import buffered_read

    (tmp_path / "text").write_bytes(TEXT)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT), encoding="latin-1"))
    buffers = list(buffered_read("-" if from_stdin else str(tmp_path / "text"), size))
    assert buffers == [LINES[start : start + size] for start in range(0, len(LINES), size)]


def test_a_line_is_there_as_soon_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairseq_cli.interactive import buffered_read

    read = []

    def reading() -> object:
        for number in range(3):
            read.append(number)
            yield f"{number}\n".encode()

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=reading()))
    buffers = buffered_read("-", 2)
    assert next(buffers) == ["0", "1"]
    assert read == [0, 1]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    from fairseq_cli.interactive import buffered_read

    (tmp_path / "latin").write_bytes(b"a\n\xe4b\n")
    with pytest.raises(UserError, match=r"latin is not UTF-8: line 2 has the byte 0xe4"):
        list(buffered_read(str(tmp_path / "latin"), 1))
