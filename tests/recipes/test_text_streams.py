"""Lines of text out of archives: one for one with the other side, whatever stands in them, in bounded memory."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from corpus_mirror import write_tar, write_zip
from text_streams import one_line, read_text

from fairseq_compat import UserError

LINES = ["The first line.", "", "Zweite Zeile: Straße", "第三行", "the last"]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()


def tar(path: Path, members: Iterable[tuple[str, bytes]]) -> str:
    write_tar(path, dict(members))
    return str(path)


def zipped(path: Path, members: Iterable[tuple[str, bytes]]) -> str:
    write_zip(path, dict(members))
    return str(path)


def lines(name: str | Path) -> list[str]:
    return list(read_text(str(name)))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\u2028b\nc\u2029d\n", ["a b", "c d"]),
        ("a\u0085b\n\u0085\n", ["a b", ""]),
        ("a b\r\nc\r\n\r\n", ["a b", "c", ""]),
        ("a\rb\rc\nd\n", ["a b c", "d"]),
        ("\ufeffa\nb\ufeffc\n", ["a", "b c"]),
        ("a\0b\n\0\n", ["a b", ""]),
        ("a\tb\n\t\n", ["a b", ""]),
        ("a\x0bb\x0cc\x1cd\x1de\x1ef\x7fg\n", ["a b c d e f g"]),
        ("  a \u00a0 b\u3000c  \n", ["a b c"]),
        ("a\u200bb \u00ad \U0001f600\n", ["a\u200bb \u00ad \U0001f600"]),
        ("a\n\n\nb", ["a", "", "", "b"]),
        ("", []),
        ("\n", [""]),
    ],
)
def test_one_line_for_each_line_feed(content: str, expected: list[str], tmp_path: Path) -> None:
    assert lines(written(tmp_path / "text", content.encode())) == expected
    assert lines(tar(tmp_path / "a.tgz", [("m", content.encode())]) + "!m") == expected
    for line in expected:
        assert line.splitlines() in ([line], [])
        assert one_line(line) == line


def test_every_place(tmp_path: Path) -> None:
    members = [("folder/other", b"no\n"), ("./folder/text", CONTENT), ("folder/text.gz", gzip.compress(CONTENT))]
    places = [written(tmp_path / "text", CONTENT), written(tmp_path / "text.gz", gzip.compress(CONTENT))]
    for archive in (
        tar(tmp_path / "a.tar", members), tar(tmp_path / "a.tgz", members), tar(tmp_path / "a.tar.gz", members),
        zipped(tmp_path / "a.zip", members),
    ):  # fmt: skip
        places += [f"{archive}!folder/text", f"{archive}!folder/text.gz"]
    for place in places:
        assert lines(place) == LINES, place


def test_talks(tmp_path: Path) -> None:
    """Of a training text of IWSLT all that is no speech is left out, but for titles and summaries; of its XML too."""
    talk = "<url>http://x</url>\n<keywords>a, b</keywords>\n<talkid>7</talkid>\n<title>Über A</title>\n"
    talk += "<description>TED Talk: B.</description>\nUnd „so“ weiter\u2019s .\n"
    expected = ["Über A", "TED Talk: B.", "Und „so“ weiter\u2019s ."]
    archive = tar(tmp_path / "a.tgz", [("de-en/train.tags.de-en.de", talk.encode()), ("de-en/other", talk.encode())])
    assert lines(f"{archive}!de-en/train.tags.de-en.de") == expected
    assert len(lines(f"{archive}!de-en/other")) == 6
    xml = '<?xml version="1.0"?>\n<title>T</title>\n<seg id="1"> Das ist\u2019s . </seg>\n<seg id="2">Nein</seg>\n'
    assert lines(tar(tmp_path / "b.tgz", [("x.xml", xml.encode())]) + "!x.xml") == ["Das ist's .", "Nein"]


def test_folders_with_every_character(tmp_path: Path) -> None:
    folder = tmp_path / "c++ no!@1 wow! x"
    folder.mkdir()
    assert lines(written(folder / "text", CONTENT)) == LINES
    assert lines(tar(folder / "a.tgz", [("m", CONTENT)]) + "!m") == LINES


def test_several_members_in_the_same_order(tmp_path: Path) -> None:
    """Book2 before Book10 on both sides, whatever their order in the archive."""
    numbers = [10, 1, 2, 21, 3]
    members = [(f"all/Book{number}_{side}.txt", f"{number}\n".encode()) for side in ("en", "ch") for number in numbers]
    archive = zipped(tmp_path / "a.zip", [*members, ("all/Book²_en.txt", b"square\n"), ("all/readme", b"no\n")])
    assert lines(f"{archive}!all/*_ch.txt") == ["1", "2", "3", "10", "21"]
    assert lines(f"{archive}!all/*_en.txt") == ["1", "2", "3", "10", "21", "square"]
    assert lines(f"{archive}!all/*_c[hn].txt") == ["1", "2", "3", "10", "21"]


def test_several_members_of_a_tar(tmp_path: Path) -> None:
    """Both columns of the same members."""
    members = [(f"data/{number}train.gz", gzip.compress(f"{number}\ta {number}\n".encode())) for number in (2, 10, 1)]
    archive = tar(tmp_path / "a.tar", [*members, ("data/1test.gz", gzip.compress(b"no\n"))])
    assert lines(f"{archive}!data/*train.gz@1") == ["2", "10", "1"]
    assert lines(f"{archive}!data/*train.gz@2") == ["a 2", "a 10", "a 1"]


def test_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "text", "1\ta b\tä\r\n\n2\tc\td\u2028e\n3\t\tf\n".encode())
    assert lines(f"{path}@1") == ["1", "2", "3"]
    assert lines(f"{path}@2") == ["a b", "c", ""]
    assert lines(f"{path}@3") == ["ä", "d e", "f"]
    with pytest.raises(UserError, match=r"text, line 1: 3 columns, and number 4 is asked for"):
        lines(f"{path}@4")


SGML = """<srcset setid="news" srclang="any">
<doc sysid="ref" docid="a" genre="news"><hl>
<seg id="1"> Ein &amp; <b>zwei</b> </seg></hl>
<p><seg id="2" type='x'>drei
vier</seg><SEG id="3"></SEG></p>
</doc>
<doc docid="b"><p>no <seg>f\u2028ünf</seg></p></doc></srcset>
"""


@pytest.mark.parametrize("packed", [False, True])
def test_segments_of_sgml(packed: bool, tmp_path: Path) -> None:
    content = gzip.compress(SGML.encode()) if packed else SGML.encode()
    archive = tar(tmp_path / "a.tgz", [("test.sgm.gz" if packed else "test.sgm", content)])
    assert lines(f"{archive}!test.sgm*") == ["Ein &amp; <b>zwei</b>", "drei vier", "", "f ünf"]


def test_not_utf_8(tmp_path: Path) -> None:
    content = b"good\nna\xefve\n"
    archive = tar(tmp_path / "a.tgz", [("m", content), ("m.sgm", b"<seg>a</seg>\n\n<seg>\xff</seg>")])
    for name, line, byte in ((f"{archive}!m", 2, "ef"), (f"{archive}!m.sgm", 3, "ff")):
        with pytest.raises(UserError, match=f"is not UTF-8: line {line} has the byte 0x{byte}"):
            lines(name)


def test_missing(tmp_path: Path) -> None:
    for archive in (tar(tmp_path / "a.tgz", [("m", CONTENT)]), zipped(tmp_path / "a.zip", [("m", CONTENT)])):
        for member in ("n", "n*", "M", "folder/m"):
            with pytest.raises(UserError, match=rf"{archive} has no member {re.escape(member)}"):
                lines(f"{archive}!{member}")
    for name in ("nowhere.tgz!m", "nowhere.zip!m", "nowhere", "nowhere.gz"):
        with pytest.raises(UserError, match=rf"{tmp_path}/nowhere.* does not exist"):
            lines(tmp_path / name)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        lines(tmp_path)


@pytest.mark.parametrize("name", ["a.tgz", "a.tar", "a.zip", "a.gz", "a.tar+gz"])
def test_no_line_is_lost_in_silence(name: str, tmp_path: Path) -> None:
    """Wherever an archive ends early: an error, though some lines may have come before."""
    members = [(f"m{number}", CONTENT * 20) for number in range(3)]
    if name == "a.gz":
        path, pattern = written(tmp_path / name, gzip.compress(CONTENT * 60)), ""
    elif name == "a.tar+gz":
        path, pattern = tmp_path / "a.tar", "!m*.gz"
        tar(path, [(f"{member}.gz", gzip.compress(content)) for member, content in members])
    else:
        path, pattern = tmp_path / name, "!m*"
        (zipped if name == "a.zip" else tar)(path, members)
    whole = path.read_bytes()
    assert lines(f"{path}{pattern}") == LINES * 60
    end = len(whole.rstrip(b"\0")) if ".tar" in name else len(whole)
    for size in {0, *range(1, end, 97), *range(512, end, 512), end - 1}:
        path.write_bytes(whole[:size])
        if size or name != "a.gz":  # Python takes no bytes for a whole gzip file without content
            with pytest.raises(UserError, match=r"is damaged or incomplete \(.*\); delete it and fetch it again"):
                lines(f"{path}{pattern}")


def test_damage_within(tmp_path: Path) -> None:
    """A bit that was turned over, where there are checksums."""
    for path in (
        Path(tar(tmp_path / "a.tgz", [("m", CONTENT * 50)])), Path(zipped(tmp_path / "a.zip", [("m", CONTENT * 50)])),
        written(tmp_path / "a.gz", gzip.compress(CONTENT * 50)),
    ):  # fmt: skip
        whole = bytearray(path.read_bytes())
        whole[100] ^= 1
        path.write_bytes(whole)
        with pytest.raises(UserError, match="damaged"):
            lines(path if path.suffix == ".gz" else f"{path}!*")


def test_memory_does_not_grow(tmp_path: Path) -> None:
    size = 8_000_000
    tar(tmp_path / "a.tgz", ((member, (b"x" * 39_999 + b"\n") * (size // 40_000)) for member in "ab"))
    stream = read_text(f"{tmp_path}/a.tgz!*")
    for _ in islice(stream, 10):
        pass
    tracemalloc.start()
    count = 10 + sum(1 for _ in stream)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2 * size // 40_000
    assert most < 5_000_000
