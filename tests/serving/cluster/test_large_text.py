"""Blocks on disk: what a second start takes, and what it leaves."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.cluster.large_text import translate_large_text
from fairseq_depthwise.text_files import Block


class Capitals:
    """Translates into capitals, the second block before the first; ``fails`` at the third."""

    messages, actors, depends_on = "", 1, None

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def close(self) -> None: ...

    def translate(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, bytes, list[str]]]:
        for block in sorted(blocks, key=lambda block: [2, 1, 3][block.number]):
            if block.number == 2 and self._fails:
                raise RuntimeError
            yield block, "".join(f"{line.upper()}\n" for line in block.lines).encode(), []


def translate(folder: Path, beam: int = 4, *, fails: bool = False) -> None:
    (folder / "text").write_text("a\nb\nc\nd\ne\n", encoding="utf-8")
    start: Any = partial(Capitals, fails=fails)
    files, depends_on = [str(folder / "text")], {"--beam": beam}
    translate_large_text(files, str(folder / "out"), in_folder=False, lines=2, depends_on=depends_on, start=start)


@pytest.mark.parametrize(("beam", "lines", "earlier"), [(4, 1, ", 4 at earlier starts"), (5, 5, "")])
def test_second_start(beam: int, lines: int, earlier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError):
        translate(tmp_path, fails=True)
    assert len([*tmp_path.glob("out.blocks/*.block")]) == 2
    with (tmp_path / "out.blocks" / "made_by.json").open("rb") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"out is being made by another process"):
            translate(tmp_path)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out.blocks" / "notes").touch()
    capsys.readouterr()
    translate(tmp_path, beam)
    said = capsys.readouterr().err.splitlines()[-1]
    assert (said.partition(" lines")[0], said.partition("a second")[2]) == (str(lines), earlier)
    assert (tmp_path / "out").read_text(encoding="utf-8") == "A\nB\nC\nD\nE\n"
    assert [path.name for path in (tmp_path / "out.blocks").iterdir()] == ["notes"]
    with pytest.raises(UserError, match=r"out\.blocks' exists"):
        translate(tmp_path)
