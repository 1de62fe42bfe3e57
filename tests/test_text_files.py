"""Where lines end, and what is said of bytes that are no text."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_compat import UserError
from fairseq_depthwise import text_files
from fairseq_depthwise.text_files import lines_of


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\x85c\x0bd\x1ce\n\u00e4\n".encode(), ["a\u2028b\x85c\x0bd\x1ce", "\u00e4"]),
    ],
)
def test_lines_end_at_line_feeds_only(content: bytes, lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    assert list(lines_of(str(path))) == lines


def test_lines_before_one_that_is_not_utf8_are_there(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"a\nb\n\xe4c\n")
    lines = lines_of(str(path))
    assert [next(lines), next(lines)] == ["a", "b"]
    with pytest.raises(UserError, match=r"latin is not UTF-8: line 3 has the byte 0xe4"):
        next(lines)


def test_stdin_stays_open_and_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO(b"a\n\xff\n")
    monkeypatch.setattr(text_files.sys, "stdin", SimpleNamespace(buffer=buffer))
    with pytest.raises(UserError, match=r"^stdin is not UTF-8: line 2"):
        list(lines_of("-"))
    assert not buffer.closed


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder; give a text file"):
        list(lines_of(str(tmp_path)))
