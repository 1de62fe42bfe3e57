"""Reads files of ``torch.save`` as plain values and tensors of numbers, and builds nothing else.

PyTorch's weights-only loading still calls functions of its own and sets states of objects as the file says; NumPy takes
the bytes of an array for addresses where such a state says so. Here a pickle may name only what :data:`_NAMES` has,
each of these checks what it is given, and tensors are looked up in the file's bytes. A text that omegaconf would
interpolate, or that is an address in a network, is refused wherever it stands.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import pickle
import re
import sys
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NamedTuple

import numpy as np
import torch

logger = logging.getLogger(__name__)

#: How files begin that ``torch.save`` writes since PyTorch 1.6.
_ARCHIVE = b"PK\x03\x04"

#: What an older file has before the value: a number that tells the format, and its version.
_OLD_FORMAT = (0x1950A86A20F9469CFC6C, 1001)

#: Values of a tensor that may be views of fewer; a file of kilobytes can hold one of terabytes in this way.
_MOST_REPEATED = 2**20

#: Values in a file at most, however often each is repeated, and how deep they may be nested.
_MOST_VALUES, _DEEPEST = 2**20, 50

#: Values among the options at most: omegaconf takes a second for some ten thousand.
_MOST_OPTIONS = 2**14

#: Addresses in a network, but for those of logging (ext), those at which processes find each other, and fairseq's own.
_ADDRESS = re.compile(
    r"\s*(?!(tcp|env|file|ext)://|https://dl\.fbaipublicfiles\.com/fairseq/(?!.*(\.\.|%)))[a-z][\w+.-]*://", re.I | re.S
)


class RefusedError(ValueError):
    """A file holds something else; the message is the end of a sentence about it."""


def read(file: IO[bytes], *, mapped: bool = False) -> Any:
    """Return what ``torch.save`` wrote, with all tensors on the CPU; ``mapped`` leaves those of an archive in the file.

    Raises:
        RefusedError: there is something in it that is neither a plain value nor a tensor of numbers.
        Exception: it is damaged, or was not written by ``torch.save``.
    """
    begin = file.read(len(_ARCHIVE))
    file.seek(0)
    if begin == _ARCHIVE:
        value = _read_archive(file, mapped)
    elif begin.startswith(pickle.PROTO):
        value = _read_old_format(file)
        name = getattr(file, "name", "the checkpoint")
        logger.warning("%s is of PyTorch 1.5 or older, whose files have no checksums: damage is not seen", name)
    else:
        raise ValueError("no pickle")
    require_plain(value)
    for options in ("cfg", "args"):
        require_plain(value.get(options) if isinstance(value, dict) else None, most=_MOST_OPTIONS)
    return value


def require_plain(value: Any, *, most: int = _MOST_VALUES) -> None:
    """Refuse texts that would be looked up elsewhere, JSON in them, too, and values that are too many or too deep."""
    for option, text in _texts(value, most):
        if "${" in text:
            raise RefusedError(
                f"its option {option} is {text[:60]!r}, which omegaconf would look up; give a plain value"
            )
        if _ADDRESS.match(text):
            raise RefusedError(f"its option {option} is {text[:60]!r}; only files on this machine can be read")


def _texts(value: Any, most: int) -> Iterator[tuple[str, str]]:
    """Yield the texts in values, keys among them, each with the key that it stands under."""
    waiting = [("", value, 0)]
    seen, texts = 0, set()
    while waiting:
        option, value, depth = waiting.pop()
        if isinstance(value, str):
            if value in texts:  # a long one can be named a million times
                continue
            texts.add(value)
            yield option, value
            if value.lstrip().startswith("{"):  # options of the model in a linearized one
                with suppress(ValueError, RecursionError):
                    waiting.append((option, json.loads(value), depth + 1))
            continue
        if isinstance(value, (dict, Namespace)):
            inside = []
            for key, entry in (value if isinstance(value, dict) else vars(value)).items():
                inside += [(str(key), key), (str(key), entry)]
        elif isinstance(value, (list, tuple)):
            inside = [(option, entry) for entry in value]
        elif callable(value):
            raise RefusedError("it names a function or a class as a value")
        else:
            continue
        seen += len(inside)
        if seen > most or depth > _DEEPEST:
            raise RefusedError(f"it has more than {most:,} values, or more than {_DEEPEST} within each other")
        waiting += [(name, entry, depth + 1) for name, entry in inside]


class _Storage(NamedTuple):
    """Numbers of one type, as bytes."""

    dtype: torch.dtype
    content: torch.UntypedStorage


def _read_archive(file: IO[bytes], mapped: bool) -> Any:
    whole = _bytes_of(file)
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        # Members that overlap could make terabytes of a small file.
        if sum(member.file_size for member in archive.infolist()) > whole.nbytes():
            raise RefusedError("what is in it is larger than the file, which torch.save never writes")
        if any(member.compress_type or member.compress_size != member.file_size for member in archive.infolist()):
            raise RefusedError("it is compressed, which torch.save never does")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} is not that of its bytes")
        # There is exactly one pickle, in a folder of any name.
        (folder,) = (name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl"))
        if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != sys.byteorder.encode():
            raise RefusedError(f"it was written by a machine of another byte order; this one is {sys.byteorder} endian")
        values = archive.read(f"{folder}data.pkl")
    storages: dict[str, _Storage] = {}

    def find(key: str, dtype: torch.dtype, values: int) -> _Storage:
        if key not in storages:
            member = members[f"{folder}data/{key}"]
            file.seek(member.header_offset + 26)  # a local header has 30 bytes; its last are lengths of what follows
            begin = file.tell() + 4 + sum(int.from_bytes(file.read(2), "little") for _ in range(2))
            content = whole[begin : begin + member.file_size]
            _require_truth_values(dtype, content)
            # Tensors that stay in the file must be aligned there.
            storages[key] = _Storage(dtype, content if mapped and begin % 16 == 0 else content.clone())
        return storages[key]

    return _Unpickler(io.BytesIO(values), find).load()


def _read_old_format(file: IO[bytes]) -> Any:
    """Read five pickles in a row, and then the storages, each after its length."""
    whole = _bytes_of(file)
    storages: dict[str, _Storage] = {}

    def find(key: str, dtype: torch.dtype, values: int) -> _Storage:
        if key not in storages:
            size = sum(storage.content.nbytes() for storage in storages.values())
            if size + values * dtype.itemsize > whole.nbytes():
                raise EOFError("it is truncated")
            storages[key] = _Storage(dtype, torch.UntypedStorage(values * dtype.itemsize))
        return storages[key]

    mark, version, _, value, keys = (_Unpickler(file, find).load() for _ in range(5))
    if (mark, version) != _OLD_FORMAT:
        raise RefusedError("it is no file of torch.save")
    if set(keys) != storages.keys():
        raise RefusedError("the storages in it are not those of its tensors")
    for key in keys:
        dtype, storage = storages[key]
        if int.from_bytes(file.read(8), "little") * dtype.itemsize != storage.nbytes():
            raise RefusedError(f"its storage {key} has another length than its tensors")
        begin = file.tell()
        end = file.seek(begin + storage.nbytes())
        storage.copy_(whole[begin:end])
        _require_truth_values(dtype, storage)
    return value


def _bytes_of(file: IO[bytes]) -> torch.UntypedStorage:
    """Return the bytes of a file, which stay in it, or of what stands for one."""
    try:
        # By the descriptor, so that it is the file that is checked, whatever has its name by now.
        path, size = f"/dev/fd/{file.fileno()}", os.fstat(file.fileno()).st_size
        return torch.UntypedStorage.from_file(path, False, size)  # type: ignore[return-value]  # annotated as its base class
    except io.UnsupportedOperation:
        content = bytearray(file.read())
        file.seek(0)
        return torch.frombuffer(content, dtype=torch.uint8).untyped_storage()


def _require_truth_values(dtype: torch.dtype, content: torch.UntypedStorage) -> None:
    """Refuse other bytes than 0 and 1 for true and false: PyTorch counts with them."""
    if dtype is torch.bool and (torch.empty(0, dtype=torch.uint8).set_(content) > 1).any():
        raise RefusedError("it has truth values that are neither true nor false")


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    _require_keys([key for key, _ in pairs])  # as Python 2 writes them
    return OrderedDict(pairs)


def _require_keys(keys: list[Any]) -> None:
    """Refuse tuples and large numbers: hashes of shared tuples take forever, and many numbers can have one hash."""
    if any(type(key) not in (str, bool, type(None)) and not (type(key) is int and abs(key) < 2**48) for key in keys):
        raise RefusedError("it has a dictionary whose keys are neither texts nor small integers")


def _tensor(storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_unused: Any) -> Any:
    numbers = (offset, *size, *stride)
    if not isinstance(storage, _Storage) or len(size) != len(stride) or len(size) > 16:
        raise RefusedError("it has a tensor of nothing")
    if any(type(number) is not int or not 0 <= number < 2**48 for number in numbers):
        raise RefusedError("it has a tensor of a shape, an offset or strides that no tensor has")
    values, stored = math.prod(size), storage.content.nbytes() // storage.dtype.itemsize
    last = 0
    if values:
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    # Strides of 0 repeat values: masks do so, within reason.
    if (values and last >= stored) or max((values, *size)) > max(stored, _MOST_REPEATED):
        raise RefusedError(f"it has a tensor of {size} values, of which the file holds {stored:,}")
    return torch.empty(0, dtype=storage.dtype).set_(storage.content, offset if values else 0, size, stride)


def _bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise RefusedError("it has bytes in another encoding than latin1")
    return text.encode("latin1")


def _dtype(letters: str, *_unused: Any) -> np.dtype[Any]:
    if type(letters) is not str or letters not in _DTYPES:
        raise RefusedError("it has NumPy values of a type that is no number")
    return _DTYPES[letters]


def _array_of(dtype: Any, shape: Any, content: Any) -> np.ndarray[Any, Any]:
    if not isinstance(dtype, np.dtype) or type(content) is not bytes or (dtype.kind == "b" and content.strip(b"\0\1")):
        raise RefusedError("it has NumPy values that are no numbers")
    return np.frombuffer(content, dtype).reshape(shape)


def _require_dictionary(state: Any) -> None:
    """Refuse other attributes than those of fairseq's dictionaries, and other values in them than texts and numbers."""
    for name, value in state.items():
        values = [value]
        if type(value) is dict:
            values = list(value.values())
        elif type(value) is list:
            values = value
        kind = str if name == "symbols" or name.endswith("_word") else int
        if not _ATTRIBUTES.fullmatch(name) or any(type(value) is not kind for value in values):
            raise RefusedError(f"it has a dictionary whose {name} is none of one")


#: What speech models keep of their task: fairseq's dictionaries, objects of its own class.
_DICTIONARY = ("fairseq.data.dictionary", "Dictionary")
_ATTRIBUTES = re.compile("symbols|count|indices|nspecial|(bos|pad|eos|unk)_(word|index)")

#: NumPy's types of numbers, by how their pickles name them: truth values, integers, floats.
_DTYPES = {np.dtype(letter).str[1:]: np.dtype(letter) for letter in "?bhilqBHILQefd"}

_NUMBERS = {
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Float": torch.float32,
    "Double": torch.float64,
}

#: What a pickle may name; of NumPy by the names of version 1, for which those of 2 stand. Only what is here can be
#: called: a pickle makes nothing else that could be.
_NAMES: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "_codecs.encode": _bytes,  # how bytes are written
    "__builtin__.bytes": lambda: b"",
    "numpy.dtype": _dtype,
    "numpy.core.multiarray._reconstruct": lambda *_: np.empty(0, "b"),
    "numpy.core.multiarray.scalar": lambda dtype, content: _array_of(dtype, (), content).item(),
    "argparse.Namespace": Namespace,
    "numpy.ndarray": "numpy.ndarray",  # what _reconstruct is told
    **{f"torch.{name}Storage": dtype for name, dtype in _NUMBERS.items()},
}

#: The instructions that ``torch.save`` writes; Python has more, such as sets, which compute hashes of what is in them.
_INSTRUCTIONS = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS "
    "BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE NEWOBJ BUILD"
)


class _Unpickler(pickle._Unpickler):
    """Python's own, with fewer instructions; those that make, call or change an object check which.

    Args:
        file: at the beginning of a pickle.
        find: returns a storage, given its key, type and number of values.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: IO[bytes], find: Callable[[str, torch.dtype, int], _Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == _DICTIONARY:
            return getattr(import_module(module), name)
        # NumPy 2 has moved what files of version 1 name.
        if (known := _NAMES.get(f"{module}.{name}".replace("numpy._core.", "numpy.core.", 1))) is None:
            raise RefusedError(f"its pickle names {module}.{name}, and loading it could run code")
        return known

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, values, *view = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(values) is not int or any(view):
            raise RefusedError("it has a storage of no numbers")
        if type(key) is not str or not 0 <= values < 2**48:
            raise RefusedError(f"it has a storage of {values} numbers")
        storage = self._find(key, dtype, values)
        if storage.dtype is not dtype:  # truth values were looked at as what they were first
            raise RefusedError(f"its storage {key[:60]} is of two types")
        return storage

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise RefusedError("its pickle sets an item of what is no dictionary")
        _require_keys(items[::2])
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_build(self) -> None:
        state, built = self.stack.pop(), self.stack[-1]
        if type(built) is Namespace:
            if any(type(name) is not str or name.startswith("__") for name in state):
                raise RefusedError("it has options whose names are no names")
            vars(built).update(state)
        elif type(built) is np.ndarray:
            _, shape, dtype, by_columns, content = state
            array = _array_of(dtype, shape, content)
            # Sets shape and order at once; NumPy's annotations do not know its own version number in front.
            built.__setstate__((1, array.shape, array.dtype, bool(by_columns), content))  # type: ignore[arg-type]
        elif (type(built).__module__, type(built).__name__) == _DICTIONARY:
            _require_dictionary(state)
            vars(built).update(state)
        elif isinstance(built, np.dtype):
            if state[1] not in ("<", "|"):
                raise RefusedError("it has NumPy values of another byte order")
        elif type(built) is not OrderedDict:  # what hangs on one is of use for no model of fairseq
            raise RefusedError(f"its pickle sets the state of a {type(built).__name__}")


_Unpickler.dispatch = {}
for _name in _INSTRUCTIONS.split():
    _code = getattr(pickle, _name)[0]
    _Unpickler.dispatch[_code] = getattr(_Unpickler, pickle._Unpickler.dispatch[_code].__name__)
