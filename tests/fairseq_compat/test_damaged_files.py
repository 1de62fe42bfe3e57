"""Damage in a checkpoint is found before its weights are used, and only where it matters."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_compat import UserError, checkpoints


@pytest.fixture
def state() -> dict[str, Any]:
    torch.manual_seed(1)
    model = {f"layer.{number}.weight": torch.randn(8, 40) for number in range(4)}
    return {"model": model, "cfg": {"model": {"_name": "transformer", "dropout": 0.1}}}


@pytest.fixture
def whole(state: dict[str, Any]) -> bytes:
    memory = io.BytesIO()
    torch.save(state, memory)
    return memory.getvalue()


def flipped(whole: bytes, bit: int) -> io.BytesIO:
    content = bytearray(whole)
    content[bit // 8] ^= 1 << bit % 8
    return io.BytesIO(content)


def compressed(whole: bytes) -> bytes:
    """An archive that can be a thousand times as large in memory as on the disk."""
    memory = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as source, zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return memory.getvalue()


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    same = one.keys() == other.keys() and one["cfg"] == other["cfg"] and one["model"].keys() == other["model"].keys()
    return same and all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


def test_every_flipped_bit_of_a_weight_is_refused(state: dict[str, Any], whole: bytes) -> None:
    chance = random.Random(1)
    for number in range(300):
        weight = state["model"][f"layer.{number % 4}.weight"].numpy().tobytes()
        place = whole.index(weight) * 8 + chance.randrange(len(weight) * 8)
        assert not equal(torch.load(flipped(whole, place)), state), "PyTorch itself does not see it"
        with pytest.raises(UserError, match=rf"the checksum of \w+/data/{number % 4} "):
            checkpoints.load(flipped(whole, place))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_any_other_flipped_bit_is_refused_or_changes_nothing(state: dict[str, Any], whole: bytes) -> None:
    chance = random.Random(2)
    directory = whole.index(b"PK\x01\x02")  # of the members: here PyTorch and Python can read differently
    places = [chance.randrange(len(whole) * 8) for _ in range(150)]
    places += [chance.randrange(directory * 8, len(whole) * 8) for _ in range(300)]
    refused = 0
    for place in places:
        try:
            loaded = checkpoints.load(flipped(whole, place))
        except UserError:
            refused += 1
        else:
            assert equal(loaded, state), place
    assert refused > 150


#: Bytes of a whole checkpoint -> a file that is refused.
DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut off at the start": lambda whole: whole[: len(whole) // 50],
    "cut off in the middle": lambda whole: whole[: len(whole) // 2],
    "cut off at the end": lambda whole: whole[:-1],
    "zeros at the end": lambda whole: whole[:-2000] + bytes(2000),
    "zeros in the middle": lambda whole: whole[:3000] + bytes(1000) + whole[4000:],
    "nothing": lambda whole: b"",
    "text": lambda whole: b"just some text\nof two lines\n",
    "a parenthesis": lambda whole: b"(",
    "letters": lambda whole: "\N{GREEK SMALL LETTER ALPHA}".encode() * 50,
    "no archive": lambda whole: b"PK\x03\x04 no archive",
    "compressed": compressed,
    "a flipped bit": lambda whole: flipped(whole, whole.index(b"PK\x01\x02") * 8 - 40_000).getvalue(),
    "another number of disks": lambda whole: flipped(whole, whole.rindex(b"PK\x06\x07") * 8 + 130).getvalue(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_checkpoint_is_refused_however_it_is_read(damage: str, whole: bytes, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    path = tmp_path / "checkpoint.pt"
    path.write_bytes(DAMAGED[damage](whole))
    mapped = partial(checkpoints.load_checkpoint, mapped=True)
    for load in (checkpoints.load_checkpoint, mapped, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match=f"{path} "):
            load(str(path))


def test_a_file_without_checksums_is_loaded_with_a_word(
    state: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "old.pt"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    assert equal(checkpoints.load(path), state)
    (record,) = caplog.records
    assert str(path) in record.getMessage()
