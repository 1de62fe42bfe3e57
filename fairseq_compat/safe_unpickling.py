"""A reader of pickles that may be a stranger's: it builds plain values and tensors of numbers, and nothing else.

``torch.load(weights_only=True)`` is not enough. It still calls PyTorch's functions with whatever arguments the file
gives, and restores the states of NumPy's types, by which bytes of an array can become addresses in memory. This reader

1. executes only the instructions in :data:`_INSTRUCTIONS`;
2. lets a pickle name only fairseq's dictionary and what is in :data:`_NAMES`: functions of PyTorch and NumPy are
   replaced by functions of this file, which check their arguments;
3. sets the state of few kinds of objects, and checks it (:meth:`Unpickler.load_build`);
4. makes tensors on storages of the file, within their bounds, so that a small file cannot fill memory.

What the values mean is checked afterwards, by :mod:`fairseq_compat.plain_values`.
"""

from __future__ import annotations

import math
import os
import pickle
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from fairseq_compat.plain_values import RefusedError

#: The instructions that ``torch.save`` writes. Python has more, such as those for sets, which compute hashes of what
#: they contain.
_INSTRUCTIONS = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS "
    "BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE NEWOBJ BUILD"
)

#: fairseq's dictionary, which HuBERT and wav2vec 2.0 keep of their task, and the attributes of its objects.
_DICTIONARY = ("fairseq.data.dictionary", "Dictionary")
_DICTIONARY_ATTRIBUTES = re.compile("symbols|count|indices|nspecial|(bos|pad|eos|unk)_(word|index)")

#: A tensor may repeat stored values by strides of 0, but may not have more than this many values if fewer are stored:
#: a file of some kilobytes could ask for terabytes.
_MOST_REPEATED = 2**20

#: Sizes, offsets and small integers are below; products and hashes of larger ones can be chosen to do harm.
_LARGEST = 2**48


class Storage(NamedTuple):
    """Numbers of one type, as bytes."""

    dtype: torch.dtype
    content: torch.UntypedStorage


class Unpickler(pickle._Unpickler):
    """Python's own unpickler, with fewer instructions; those that make, call or change an object check which.

    It is the one that is written in Python, since only that has a table of its instructions, which can be reduced.

    Args:
        file: at the beginning of a pickle.
        storage_of: returns a storage, given its key, type and number of values.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: IO[bytes], storage_of: Callable[[str, torch.dtype, int], Storage]) -> None:
        super().__init__(file, encoding="utf-8")  # of texts that Python 2 wrote
        self._storage_of = storage_of
        # A value that the file stores once may be copied at every few bytes of it, so what is copied is counted.
        self._most_copied = max(4 * _size_of(file), _MOST_REPEATED)

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in a pickle (GLOBAL)."""
        if (module, name) == _DICTIONARY:
            return getattr(import_module(module), name)
        # NumPy 2 has renamed numpy.core; both versions write files.
        if (known := _NAMES.get(f"{module}.{name}".replace("numpy._core.", "numpy.core.", 1))) is None:
            named = f"{module}.{name}"[:100]
            raise RefusedError(
                f"its pickle names {named if named.isprintable() else ascii(named)}, which could run code"
            )
        return known

    def load_reduce(self) -> None:
        """Call a function of :data:`_NAMES` (REDUCE)."""
        arguments = self.stack[-1]
        # Other types could be endless: an object of fairseq's Dictionary has an item at every index.
        if type(arguments) is not tuple:
            raise RefusedError("its pickle calls a function with something that is not a tuple")
        for argument in arguments:
            if isinstance(argument, (str, bytes, list, tuple)):
                self._count_copied(len(argument))
        super().load_reduce()  # type: ignore[misc]  # not in the annotations of Python's own unpickler

    def load_newobj(self) -> None:
        """Make an object of a class of :data:`_NAMES` (NEWOBJ)."""
        if type(self.stack[-1]) is not tuple:
            raise RefusedError("its pickle makes an object of something that is not a tuple")
        super().load_newobj()  # type: ignore[misc]  # as above

    def _count_copied(self, size: int) -> None:
        self._most_copied -= size
        if self._most_copied < 0:
            raise RefusedError("it repeats a large value so often that memory would be filled")

    def persistent_load(self, pid: Any) -> Storage:
        """Return a storage that a pickle refers to (BINPERSID)."""
        if type(pid) is not tuple or len(pid) < 5:
            raise RefusedError("it has an invalid storage")
        # Very old files may say at the end that the storage is a view of another one.
        kind, dtype, key, _location, length, *view = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(length) is not int or any(view):
            raise RefusedError("it has an invalid storage")
        if type(key) is not str or not 0 <= length < _LARGEST:
            raise RefusedError(f"it has a storage of {length} numbers")
        storage = self._storage_of(key, dtype, length)
        if storage.dtype is not dtype:  # bool values were checked only if the first type was bool
            raise RefusedError(f"its storage {key[:60]} is of two types")
        return storage

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        """Set items of the dictionary on top of the stack, given as key, value, key, value, ..."""
        if not isinstance(self.stack[-1], dict):
            raise RefusedError("its pickle sets an item of something that is not a dictionary")
        require_keys(items[::2])
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_build(self) -> None:
        """Set the state of the object below it on the stack (BUILD)."""
        state, built = self.stack.pop(), self.stack[-1]
        if type(state) not in (dict, OrderedDict, tuple):
            raise RefusedError(f"its pickle sets the state of a {type(built).__name__} to something else")
        self._count_copied(len(state))
        if type(built) is Namespace:
            if type(state) is tuple or any(type(name) is not str or name.startswith("__") for name in state):
                raise RefusedError("it has options with invalid names")
            vars(built).update(state)
        elif type(built) is np.ndarray:
            _version, shape, dtype, by_columns, content = state
            array = _array_of(dtype, shape, content)
            self._count_copied(array.nbytes)
            # Sets shape and order at once; NumPy's annotations do not know its own version number in front.
            built.__setstate__((1, array.shape, array.dtype, bool(by_columns), content))  # type: ignore[arg-type]
        elif (type(built).__module__, type(built).__name__) == _DICTIONARY:
            _require_fairseq_dictionary(state)
            vars(built).update(state)
        elif isinstance(built, np.dtype):
            # Nothing is set, since the types in _DTYPES are complete. Their state has the byte order of the values.
            if type(state) is not tuple or state[1] not in ("<", "|"):
                raise RefusedError("it has NumPy values of another byte order")
        elif type(built) is not OrderedDict:
            raise RefusedError(f"its pickle sets the state of a {type(built).__name__}")
        # An OrderedDict's attributes, such as _metadata of a state_dict, are ignored: no model of fairseq needs them.


# Only these instructions are executed. getattr finds the methods above where they override Python's.
Unpickler.dispatch = {}
for _name in _INSTRUCTIONS.split():
    _code = getattr(pickle, _name)[0]
    Unpickler.dispatch[_code] = getattr(Unpickler, pickle._Unpickler.dispatch[_code].__name__)


# --- what a pickle may call -------------------------------------------------------------------------------------------


def _size_of(file: IO[bytes]) -> int:
    """Return the number of bytes of a file, whose position stays."""
    position = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(position)
    return size


def _make_ordered_dict(pairs: Any = ()) -> OrderedDict[Any, Any]:
    # Python 2 gives the items to the constructor; Python 3 sets them afterwards.
    if type(pairs) not in (tuple, list) or any(type(pair) not in (tuple, list) or len(pair) != 2 for pair in pairs):
        raise RefusedError("it has a dictionary that is not made of pairs")
    require_keys([key for key, _ in pairs])
    return OrderedDict(pairs)


def require_keys(keys: list[Any]) -> None:
    """Refuse keys that can be made slow to hash or to look up.

    Nested tuples that share parts take exponential time, and large integers can be chosen to have one hash.
    """
    for key in keys:
        is_small = type(key) is int and abs(key) < _LARGEST
        if type(key) not in (str, bool, type(None)) and not is_small:
            raise RefusedError("it has a dictionary whose keys are neither texts nor small integers")


def _make_tensor(
    storage: Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_gradient_and_hooks: Any
) -> Any:
    """Return a tensor that views a storage, as ``torch._utils._rebuild_tensor_v2`` does; refuse one beyond its end."""
    if not isinstance(storage, Storage):
        raise RefusedError("it has a tensor without a storage")
    if type(size) is not tuple or type(stride) is not tuple:
        raise RefusedError("it has a tensor with an impossible shape, offset or stride")
    numbers = (offset, *size, *stride)
    are_sizes = all(type(number) is int and 0 <= number < _LARGEST for number in numbers)
    if not are_sizes or len(size) != len(stride) or len(size) > 16:  # no model has more dimensions
        raise RefusedError("it has a tensor with an impossible shape, offset or stride")

    stored = storage.content.nbytes() // storage.dtype.itemsize
    count = math.prod(size)
    # The index in the storage of the last value that the tensor has.
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    is_within = count == 0 or last < stored
    # Strides of 0 repeat values, as masks do. Of a tensor without values a single length may be too large.
    if not is_within or max((count, *size)) > max(stored, _MOST_REPEATED):
        raise RefusedError(f"it has a tensor of {size} values, of which the file holds {stored:,}")
    return torch.empty(0, dtype=storage.dtype).set_(storage.content, offset if count else 0, size, stride)


def _make_bytes(text: str, encoding: str) -> bytes:
    """Return bytes, which protocol 2 of pickles writes as a text to be encoded."""
    if type(text) is not str or encoding != "latin1":
        raise RefusedError("it has bytes in another encoding than latin1")
    return text.encode("latin1")


def _find_dtype(letters: str, *_align_and_copy: Any) -> np.dtype[Any]:
    if type(letters) is not str or letters not in _DTYPES:
        raise RefusedError("it has NumPy values of a non-numeric type")
    return _DTYPES[letters]


def _array_of(dtype: Any, shape: Any, content: Any) -> np.ndarray[Any, Any]:
    """Return an array of bytes of a file; refuse bool values other than 0 and 1."""
    if not isinstance(dtype, np.dtype) or type(content) is not bytes or (dtype.kind == "b" and content.strip(b"\0\1")):
        raise RefusedError("it has NumPy values that are not numbers")
    if type(shape) is not tuple or any(type(length) is not int for length in shape):
        raise RefusedError("it has NumPy values with an impossible shape")
    return np.frombuffer(content, dtype).reshape(shape)


def _require_fairseq_dictionary(state: Any) -> None:
    """Refuse attributes that fairseq's dictionaries do not have, and values other than texts and numbers."""
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise RefusedError("its fairseq Dictionary has invalid attributes")
    for name, value in state.items():
        values = [value]
        if type(value) is dict:
            values = list(value.values())
        elif type(value) is list:
            values = value
        kind = str if name == "symbols" or name.endswith("_word") else int
        if not _DICTIONARY_ATTRIBUTES.fullmatch(name) or any(type(value) is not kind for value in values):
            raise RefusedError(f"its fairseq Dictionary has an invalid attribute {name[:60]!r}")


#: NumPy's types of numbers by the names in pickles, such as "f8" and "b1": bool, integers, floats.
_DTYPES = {np.dtype(letter).str[1:]: np.dtype(letter) for letter in "?bhilqBHILQefd"}

#: PyTorch's types of numbers by the beginnings of their storages' names, such as FloatStorage.
_STORAGE_TYPES = {
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

#: What a pickle may name; NumPy's names are those of version 1. Only what is here can be called: a pickle makes nothing
#: else that could be.
_NAMES: dict[str, Any] = {
    "collections.OrderedDict": _make_ordered_dict,
    "torch._utils._rebuild_tensor": _make_tensor,
    "torch._utils._rebuild_tensor_v2": _make_tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *_gradient_and_hooks: tensor,
    "_codecs.encode": _make_bytes,
    "__builtin__.bytes": lambda: b"",  # empty bytes, which have no text to encode
    "numpy.dtype": _find_dtype,
    "numpy.core.multiarray._reconstruct": lambda *_: np.empty(0, "b"),  # load_build sets type, shape and content
    "numpy.core.multiarray.scalar": lambda dtype, content: _array_of(dtype, (), content).item(),
    "argparse.Namespace": Namespace,
    "numpy.ndarray": "numpy.ndarray",  # only an argument of _reconstruct: a text, which cannot be called
    **{f"torch.{name}Storage": dtype for name, dtype in _STORAGE_TYPES.items()},
}
