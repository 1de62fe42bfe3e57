"""Blocks on disk: what a second start takes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.cluster.large_text import BlockFolder

DEPENDS_ON = {"--beam": 4, "text 1": "0123456789abcdef", "model": "fedcba987654"}


def start(output: Path, *, force: bool = False, **changed: object) -> bool:
    """Whether there are blocks; afterwards there is one."""
    folder = BlockFolder(str(output))
    try:
        folder.require({**DEPENDS_ON, **changed}, force=force)
    finally:
        folder._locked.close()
    found = bool(folder.blocks())
    Path(folder.path(0, 0)).write_text("translated\n", encoding="utf-8")
    return found


def test_second_start_finds_the_blocks_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert not start(output)
    folder = BlockFolder(str(output))
    with pytest.raises(UserError, match=r"out is being made by another process"):
        BlockFolder(str(output))
    folder._locked.close()
    assert start(output)
    (Path(folder.place) / "notes").write_text("mine", encoding="utf-8")
    folder.remove()
    assert [path.name for path in (tmp_path / "out.blocks").iterdir()] == ["notes"]


@pytest.mark.parametrize("changed", [{"--beam": 5}, {"--new": 1}, {"text 1": "other"}, {"model": "other"}])
def test_blocks_of_something_else(changed: dict[str, object], tmp_path: Path) -> None:
    output = tmp_path / "out"
    start(output)
    with pytest.raises(UserError, match=next(iter(changed))):
        start(output, **changed)
    assert start(output)
    assert not start(output, force=True, **changed)
    assert start(output, **changed)


def test_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "out.blocks").mkdir()
    (tmp_path / "out.blocks" / "mine").touch()
    with pytest.raises(UserError, match=r"out\.blocks' exists"):
        BlockFolder(str(tmp_path / "out"))
