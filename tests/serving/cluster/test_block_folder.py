"""Blocks on disk: what a second start takes, and what it refuses or translates again."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.cluster.block_folder import BlockFolder, block_folder
from fairseq_depthwise.text_files import Block

BLOCKS = [Block("text", 0, 0, 1, ("a", "b")), Block("text", 0, 1, 3, ("c",))]
DEPENDS_ON = {"options": {"--beam": 4}, "text": {"text 1": "0123456789abcdef"}, "model": {"model 1": "fedcba987654"}}


def filled(folder: BlockFolder, **changed: dict[str, object]) -> list[bool]:
    """Whether each block was there; afterwards all are."""
    for part, values in {**DEPENDS_ON, **changed}.items():
        folder.require(part, values)
    found = [folder.has(block) for block in BLOCKS]
    for block in BLOCKS:
        folder.put(block, f"translated {block.number}\n".encode())
    return found


def start(
    output: Path, said: list[str] | None = None, *, force: bool = False, **changed: dict[str, object]
) -> list[bool]:
    with block_folder("--output", str(output), force=force, say=[].append if said is None else said.append) as folder:
        return filled(folder, **changed)


def test_second_start_finds_the_blocks(tmp_path: Path) -> None:
    output, text = tmp_path / "out", io.BytesIO()
    assert start(output) == [False, False]
    with block_folder("--output", str(output), force=False, say=print) as folder:
        with pytest.raises(UserError, match=r"--output .*out is being made by another process"):
            start(output)
        assert filled(folder) == [True, True]
        folder.copy(0, 2, text)
        (Path(folder.place) / "notes").write_text("mine", encoding="utf-8")
        folder.remove_blocks()
    assert text.getvalue() == b"translated 0\ntranslated 1\n"
    assert [path.name for path in (tmp_path / "out.blocks").iterdir()] == ["notes"]


def test_nothing_is_left_of_a_start_without_blocks(tmp_path: Path) -> None:
    with block_folder("--output", str(tmp_path / "out"), force=False, say=print) as folder:
        folder.require("options", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("part", "value", "named"),
    [
        ("options", {"--beam": 5}, "--beam 4, and now there is --beam 5"),
        ("options", {"--beam": 4, "--new": 1}, "--new missing"),
        ("text", {"text 1": "0123456789ab-other"}, "text 1 0123456789ab"),
        ("model", {"model 1": "another"}, "model 1 another"),
    ],
)
def test_blocks_of_something_else(part: str, value: dict[str, object], named: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    start(output)
    with pytest.raises(UserError, match=named):
        start(output, **{part: value})
    assert start(output) == [True, True]
    assert start(output, force=True, **{part: value}) == [False, False]
    assert start(output, **{part: value}) == [True, True]


@pytest.mark.parametrize("damage", ["", "[" * 999, '{"lines": 2}\ntranslated 0\n', None])
def test_damaged_block_is_translated_again(damage: str | None, tmp_path: Path) -> None:
    output, said = tmp_path / "out", list[str]()
    start(output)
    path = tmp_path / "out.blocks" / "00000-00000000.block"
    path.write_text(path.read_text(encoding="utf-8")[:-1] if damage is None else damage, encoding="utf-8")
    assert start(output, said) == [False, True]
    assert [sentence for sentence in said if str(path) in sentence and "text, lines 1 to 2" in sentence]
    assert start(output) == [True, True]


@pytest.mark.parametrize("record", [None, "", "[]", json.dumps({"options": 3})])
def test_blocks_without_a_record_are_not_used(record: str | None, tmp_path: Path) -> None:
    start(tmp_path / "out")
    path = tmp_path / "out.blocks" / "record.json"
    if record is None:
        path.unlink()
    else:
        path.write_text(record, encoding="utf-8")
    assert start(tmp_path / "out") == [False, False]
    assert start(tmp_path / "out") == [True, True]


def test_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "out.blocks").mkdir()
    (tmp_path / "out.blocks" / "mine").touch()
    with pytest.raises(UserError, match=r"out\.blocks exists and is no folder of blocks"):
        start(tmp_path / "out")
