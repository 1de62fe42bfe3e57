"""A damaged data file is ``AssertionError``, ``KeyError: 77`` or ``struct.error``, or is read beyond its end later on.

Here opening it is a sentence that names the file; the places of all its sentences must lie within it, both sides must
have as many sentences, and each a token, if only the end of the sentence.
"""

import functools
import inspect
import os
import struct
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError, first_line

#: What fairseq's readers and NumPy raise over bytes that make no sense.
_ERRORS = (AssertionError, AttributeError, KeyError, MemoryError, OverflowError, TypeError, ValueError, struct.error)


def adjust(module: Any) -> Iterator[None]:
    yield

    if hasattr(module, "LanguagePairDataset"):
        _refuse_pairs_that_are_none(module.LanguagePairDataset)
        return
    original = module.make_dataset

    @functools.wraps(original)
    def make_dataset(path: str, impl: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            dataset = original(path, impl, *args, **kwargs)
        except _ERRORS as error:
            index, data = path + ".idx", path + ".bin"
            if not os.path.exists(index) or (os.path.exists(data) and not os.path.getsize(data)):  # of an empty text
                raise
            raise UserError(f"{index} or {data} is damaged ({first_line(error)}); make the data anew") from error
        if isinstance(dataset, module.MMapIndexedDataset):
            _require_places(path, dataset._index, dataset._bin_buffer, kwargs.get("dictionary"))
        return dataset

    module.make_dataset = make_dataset


def _refuse_pairs_that_are_none(dataset: Any) -> None:
    import numpy

    original = dataset.__init__
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(self, *args, **kwargs).arguments
        source, target = given["src"], given.get("tgt")
        if target is not None and len(source) != len(target):
            raise UserError(
                f"the data has {len(source)} source sentences and {len(target)} target sentences: one side is damaged, "
                "or the two do not belong together; make the data anew from two texts with as many lines"
            )
        original(self, *args, **kwargs)
        for sizes, side in ((self.src_sizes, "source"), (self.tgt_sizes, "target")):
            if sizes is not None and len(sizes) and numpy.min(sizes) < 1:
                raise UserError(f"the {side} of a sentence pair has no token: the data is damaged; make it anew")

    dataset.__init__ = init


def _require_places(path: str, index: Any, data: Any, dictionary: Any) -> None:
    """Raise :class:`UserError` unless each sentence lies within the data, and each token in the dictionary.

    fairseq reads both files once before it uses them, so this takes little.
    """
    import numpy

    starts, lengths, size = index._pointers, index._sizes, data.nbytes
    if len(index) and (starts.min() < 0 or lengths.min() < 0 or (starts + lengths * index._dtype_size).max() > size):
        raise UserError(
            f"{path}.idx is damaged, or belongs to another {path}.bin: it has places outside of its {size} bytes; "
            "make the data anew"
        )
    tokens = numpy.frombuffer(data, dtype=index.dtype, count=size // index._dtype_size)
    if dictionary is not None and len(tokens) and not 0 <= tokens.min() <= tokens.max() < len(dictionary):
        raise UserError(
            f"{path}.bin has the token number {tokens.max()}, and its dictionary {len(dictionary)} entries: it is "
            "damaged, or was made with another dictionary"
        )
