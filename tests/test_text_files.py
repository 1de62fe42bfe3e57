"""Where lines end, and what is said of bytes that are no text."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise import text_files
from fairseq_depthwise.text_files import Block, blocks_of, compressed, lines_of


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),  # a byte order mark
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


@pytest.mark.parametrize(("ending", "module"), [(".gz", gzip), (".xz", lzma), (".txt", None)])
def test_compressed_in_parts(ending: str, module: Any, tmp_path: Path) -> None:
    path = tmp_path / f"text{ending}"
    content = b"".join(compressed(str(path), part) for part in (b"a\nb", b"c\n", b"", "\u00e4\n".encode()))
    path.write_bytes(content)
    assert list(lines_of(str(path))) == ["a", "bc", "\u00e4"]
    assert (content if module is None else module.decompress(content)) == "a\nbc\n\u00e4\n".encode()


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-3], lambda content: b"plain\n" + content, lambda _: b"a\n", lambda _: b""],
    ids=["cut short", "text before it", "text", "empty"],
)
def test_damaged_archive(ending: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / f"text{ending}"
    path.write_bytes(damage(compressed(str(path), b"a\n" * 999)))
    with pytest.raises(UserError, match=rf"text\{ending} is damaged, incomplete or not compressed"):
        list(lines_of(str(path)))


def test_damage_between_the_parts_of_an_archive(tmp_path: Path) -> None:
    """Python's reader of .xz files ends there without a word; zeros may be between them."""
    first, second = lzma.compress(b"a\nb"), lzma.compress(b"c\n" * 600_000)
    path = tmp_path / "text.xz"
    path.write_bytes(first + bytes(8) + second + bytes(4))
    assert list(lines_of(str(path))) == ["a", "bc", *["c"] * (600_000 - 1)]
    for damaged in (first + b"\1" + second[1:], first + second + b"more", first + bytes(8) + second[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"text\.xz is damaged, incomplete or not compressed"):
            list(lines_of(str(path)))


def test_blocks_are_of_one_file_each(tmp_path: Path) -> None:
    first, second, empty = (str(tmp_path / name) for name in ("first", "second", "empty"))
    for path, lines in ((first, 5), (second, 4), (empty, 0)):
        Path(path).write_text("".join(f"{path} {line}\n" for line in range(lines)))
    blocks = list(blocks_of([first, empty, second], 2))
    assert [(block.path, block.file, block.number, block.first, len(block.lines)) for block in blocks] == [
        (first, 0, 0, 1, 2), (first, 0, 1, 3, 2), (first, 0, 2, 5, 1), (second, 2, 0, 1, 2), (second, 2, 1, 3, 2),
    ]  # fmt: skip
    assert str(blocks[1]) == f"{first}, lines 3 to 4"
    assert str(Block("-", 0, 0, 1, ("a",))) == "stdin, lines 1 to 1"
