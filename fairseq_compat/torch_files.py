"""Reads files written by ``torch.save`` as plain values and tensors of numbers, and builds nothing else.

There are two formats: an archive (PyTorch 1.6 and later), and a row of five pickles, followed by the contents of the
storages (older). Their pickles are read by :mod:`fairseq_compat.safe_unpickling`, which finds storages by their keys.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import struct
import sys
import zipfile
from typing import IO, Any

import torch

from fairseq_compat.plain_values import RefusedError, require_plain
from fairseq_compat.safe_unpickling import Storage, Unpickler, require_keys

logger = logging.getLogger(__name__)

#: First bytes of an archive: it is a zip file.
_ARCHIVE = b"PK\x03\x04"

#: What a file of the older format begins with: PyTorch's magic number, and the version of the format.
_OLD_FORMAT = (0x1950A86A20F9469CFC6C, 1001)

#: At most so many values among the options: omegaconf needs about a second for ten thousand.
_MOST_OPTIONS = 2**14


def read(file: IO[bytes], *, mapped: bool = False) -> Any:
    """Return what ``torch.save`` wrote, with all tensors on the CPU; ``mapped`` leaves those of an archive in the file.

    Raises:
        RefusedError: the file has something that is neither a plain value nor a tensor of numbers.
        Exception: it is damaged, or was not written by ``torch.save``.
    """
    begin = file.read(len(_ARCHIVE))
    file.seek(0)
    if begin == _ARCHIVE:
        value = _read_archive(file, mapped)
    elif begin.startswith(pickle.PROTO):
        value = _read_old_format(file)
        name = getattr(file, "name", "the checkpoint")
        logger.warning(
            "%s was written by PyTorch 1.5 or older; such files have no checksums, so damage goes unnoticed", name
        )
    else:
        raise ValueError("not a pickle")
    require_plain(value)
    # Options, which fairseq 0.10 keeps in "args" and later versions in "cfg", become a configuration of omegaconf.
    for entry in ("cfg", "args"):
        require_plain(value.get(entry) if isinstance(value, dict) else None, most=_MOST_OPTIONS)
    return value


def _read_archive(file: IO[bytes], mapped: bool) -> Any:
    """Read an archive: ``NAME/data.pkl``, with the values, and ``NAME/data/KEY``, with the content of each storage."""
    content = _bytes_of(file)
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        # Members that overlap could make terabytes of a small file.
        if sum(member.file_size for member in archive.infolist()) > content.nbytes():
            raise RefusedError("its content is larger than the file, which torch.save never writes")
        if any(member.compress_type or member.compress_size != member.file_size for member in archive.infolist()):
            raise RefusedError("it is compressed, which torch.save never does")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} does not match its content")
        # Exactly one member is the pickle; its folder may have any name.
        (folder,) = (name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl"))
        if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != sys.byteorder.encode():
            raise RefusedError(f"it was written by a machine of another byte order; this one is {sys.byteorder} endian")
        values = archive.read(f"{folder}data.pkl")
    storages: dict[str, Storage] = {}

    def storage_of(key: str, dtype: torch.dtype, length: int) -> Storage:
        # The length is not needed: that of the member counts, and each tensor is checked against it.
        if key not in storages:
            member = members[f"{folder}data/{key}"]
            begin = _content_start(file, member)
            stored = content[begin : begin + member.file_size]
            _require_bools(dtype, stored)
            # A tensor can stay in the file only if it is aligned there; 16 bytes suit every type of PyTorch.
            storages[key] = Storage(dtype, stored if mapped and begin % 16 == 0 else stored.clone())
        return storages[key]

    return Unpickler(io.BytesIO(values), storage_of).load()


def _content_start(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Return where the content of a member begins in the file of the archive."""
    # Before it is a header of 30 bytes, whose last two numbers are the lengths of the name and the extra field, and
    # then these two.
    file.seek(member.header_offset + 26)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name_length) + int(extra_length)


def _read_old_format(file: IO[bytes]) -> Any:
    """Read five pickles, and then the storages, each after its length."""
    content = _bytes_of(file)
    storages: dict[str, Storage] = {}
    unread = content.nbytes()

    def storage_of(key: str, dtype: torch.dtype, length: int) -> Storage:
        nonlocal unread
        # The content of a storage follows the pickles: here it is only allocated, within the size of the file.
        if key not in storages:
            unread -= length * dtype.itemsize
            if unread < 0:
                raise EOFError("it is truncated")
            storages[key] = Storage(dtype, torch.UntypedStorage(length * dtype.itemsize))
        return storages[key]

    magic, version, _system, value, keys = (Unpickler(file, storage_of).load() for _ in range(5))
    if (magic, version) != _OLD_FORMAT:
        raise RefusedError("it was not written by torch.save")
    # A storage that is not filled would have whatever was in memory.
    if type(keys) is not list:
        raise RefusedError("its storages are not those of its tensors")
    require_keys(keys)
    if set(keys) != storages.keys() or len(keys) != len(storages):
        raise RefusedError("its storages are not those of its tensors")
    for key in keys:
        dtype, storage = storages[key]
        if int.from_bytes(file.read(8), "little") * dtype.itemsize != storage.nbytes():
            raise RefusedError(f"its storage {key} does not have the length that its tensors expect")
        begin = file.tell()
        end = file.seek(begin + storage.nbytes())
        storage.copy_(content[begin:end])
        _require_bools(dtype, storage)
    return value


def _bytes_of(file: IO[bytes]) -> torch.UntypedStorage:
    """Return the bytes of a file: mapped into memory, not read, if it is on disk."""
    try:
        # By its descriptor: its path may be the name of another file by now.
        path, size = f"/dev/fd/{file.fileno()}", os.fstat(file.fileno()).st_size
        shared = False  # what is written into a tensor stays in memory
        return torch.UntypedStorage.from_file(path, shared, size)  # type: ignore[return-value]  # annotated as its base class
    except io.UnsupportedOperation:  # a file in memory has no descriptor
        content = bytearray(file.read())
        file.seek(0)
        return torch.frombuffer(content, dtype=torch.uint8).untyped_storage()


def _require_bools(dtype: torch.dtype, content: torch.UntypedStorage) -> None:
    """Refuse bytes other than 0 and 1 in a storage of bool values: PyTorch would compute with them."""
    if dtype is torch.bool and (torch.empty(0, dtype=torch.uint8).set_(content) > 1).any():
        raise RefusedError("it has bool values other than 0 and 1")
