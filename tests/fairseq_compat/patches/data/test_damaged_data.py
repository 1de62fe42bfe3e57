"""Damaged data is a sentence that names its file, when it is opened."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.data_utils import load_indexed_dataset
from probe_checkpoints import data_in
from tiny_models import dictionary_of

from fairseq_compat import UserError

Damage = Callable[[bytes], bytes]

INDEX: dict[str, Damage] = {
    "no index": lambda content: b"XXXXXXXXX" + content[9:],
    "another version": lambda content: content[:9] + struct.pack("<Q", 7) + content[17:],
    "another type": lambda content: content[:17] + b"\x77" + content[18:],
    "too many sentences": lambda content: content[:18] + struct.pack("<Q", 2**40) + content[26:],
    "cut off": lambda content: content[:21],
    "empty": lambda content: b"",
    "a place outside": lambda content: content[:-8] + struct.pack("<q", 2**40),
    "a place before": lambda content: content[:-8] + struct.pack("<q", -8),
}


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    data_in(tmp_path / "data")
    return str(tmp_path / "data" / "valid.src-tgt.src")


@pytest.mark.parametrize("damage", INDEX)
def test_an_index(damage: str, prefix: str) -> None:
    path = Path(f"{prefix}.idx")
    path.write_bytes(INDEX[damage](path.read_bytes()))
    with pytest.raises(UserError, match=r"valid\.src-tgt\.src\.idx .*damaged"):
        load_indexed_dataset(prefix, dictionary_of(12), "mmap")


def test_data_that_is_cut_off(prefix: str) -> None:
    path = Path(f"{prefix}.bin")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match="damaged, or belongs to another"):
        load_indexed_dataset(prefix, dictionary_of(12))


def test_data_of_another_dictionary(prefix: str) -> None:
    with pytest.raises(UserError, match=r"\.bin has the token number 11, and its dictionary 8 entries"):
        load_indexed_dataset(prefix, dictionary_of(8))


def test_a_source_without_a_token(prefix: str) -> None:
    path = Path(f"{prefix}.idx")
    content = path.read_bytes()
    path.write_bytes(content[:26] + struct.pack("<i", 0) + content[30:])
    source, dictionary = load_indexed_dataset(prefix, dictionary_of(12)), dictionary_of(12)
    with pytest.raises(UserError, match="source of a sentence pair"):
        LanguagePairDataset(source, source.sizes, dictionary)


def test_sides_of_different_lengths(prefix: str, tmp_path: Path) -> None:
    data_in(tmp_path / "shorter", valid=["w1 w2"])
    source = load_indexed_dataset(prefix, dictionary_of(12))
    target = load_indexed_dataset(str(tmp_path / "shorter" / "valid.src-tgt.tgt"), dictionary_of(12))
    with pytest.raises(UserError, match=rf"{len(source)} source sentences and 1 target sentences"):
        LanguagePairDataset(source, source.sizes, dictionary_of(12), target, target.sizes, dictionary_of(12))


@pytest.mark.parametrize("content", [b"w0 1\n\xff\xfe 1\n", b"w0\n", b"w0 x\n", b"w0 1\nw0 1\n"])
def test_a_dictionary(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dict.src.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{path} is no dictionary"):
        Dictionary.load(str(path))
    with pytest.raises(FileNotFoundError):
        Dictionary.load(f"{path}.gone")
