"""Lines of text out of archives: one for one with the other side, whatever stands in them, in bounded memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import pytest
from corpus_mirror import write_tar, write_zip
from text_streams import one_line, read_text

from fairseq_compat import UserError

LINES = ["The first line.", "", "Zweite Zeile: Straße", "第三行", "the last"]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()


def tar(path: Path, members: Iterable[tuple[str, bytes]]) -> str:
    write = write_zip if path.suffix == ".zip" else write_tar
    write(path, dict(members))
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
        tar(tmp_path / "a.zip", members),
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


def test_several_members_in_the_same_order(tmp_path: Path) -> None:
    """On both sides, whatever their order in the archive."""
    members = [
        (f"all/Book{number}_{side}.txt", f"{number}\n".encode()) for side in ("en", "ch") for number in (2, 10, 1)
    ]
    archive = tar(tmp_path / "a.zip", [*members[::-1], ("all/readme", b"no\n")])
    for pattern in ("all/*_ch.txt", "all/*_en.txt", "all/*_c[hn].txt"):
        assert lines(f"{archive}!{pattern}") == ["10", "1", "2"]


def test_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "text", "1\ta b\tä\r\n\n2\tc\td\u2028e\n3\t\tf\n".encode())
    assert lines(f"{path}@1") == ["1", "2", "3"]
    assert lines(f"{path}@2") == ["a b", "c", ""]
    assert lines(f"{path}@3") == ["ä", "d e", "f"]


def test_a_file_comes_before_what_its_name_could_mean(tmp_path: Path) -> None:
    """A column of another file, or a member of an archive."""
    written(tmp_path / "news", b"1\tother\n")
    archive = tar(tmp_path / "a.tgz", [("m", b"other\n")])
    for name in (f"{tmp_path / 'news'}@2", f"{archive}!m"):
        assert lines(name) == ["other"]
        assert lines(written(Path(name), b"mine\n")) == ["mine"]


SGML = """<srcset setid="news" srclang="any">
<doc sysid="ref" docid="a" genre="news"><hl>
<seg id="1"> Ein &amp; <b>zwei</b> </seg></hl>
<p><seg id="2" type='x'>drei
vier</seg><SEG id="3"></SEG></p>
</doc>
<doc docid="b"><p>no <seg>f\u2028ünf</seg></p></doc></srcset>
"""


def test_segments_of_sgml(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tgz", [("test.sgm.gz", gzip.compress(SGML.encode()))])
    assert lines(f"{archive}!test.sgm*") == ["Ein &amp; <b>zwei</b>", "drei vier", "", "f ünf"]


def test_refused(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tgz", [("m", b"good\nna\xefve\n"), ("m.sgm", b"<seg>\xff</seg>")])
    for member, words in (("n", "has no member n"), ("m", "is not UTF-8"), ("m.sgm", "is not UTF-8")):
        with pytest.raises(UserError, match=words):
            lines(f"{archive}!{member}")
    (tmp_path / "short.gz").write_bytes(gzip.compress(CONTENT * 60)[:-20])
    with pytest.raises(EOFError):
        lines(tmp_path / "short.gz")
