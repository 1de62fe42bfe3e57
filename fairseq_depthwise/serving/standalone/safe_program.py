"""Loads a program that `fairseq-depthwise export` wrote, without running what else a stranger may have put into it.

`torch.export.load` trusts the file that it is given: it unpickles objects, evaluates sizes and conditions as Python,
looks up functions of torch by name, imports classes and loads compiled libraries. Here the file is read first, and is
refused unless everything in it is tensors as plain bytes, names, sizes, and operators that export writes: some others
of ATen write out of bounds when their arguments make no sense. Torch is given a copy of what was read and nothing else.
"""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.export import ExportedProgram


class ProgramError(ValueError):
    """A file cannot be used; the message is one sentence that says which, and why."""


def load_program(path: str | Path) -> ExportedProgram:
    """Load the program in a file after looking through it; raise ProgramError where it may run code or is damaged."""
    path = Path(path)
    try:
        # It would print tracebacks of what it then raises.
        with mock.patch.object(logging.getLogger("torch.export"), "disabled", True):
            return torch.export.load(_checked_copy(path))
    except ProgramError:
        raise
    except Exception as error:  # what torch raises about a file that makes no sense is anything
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise ProgramError(f"{path} is damaged, or is no program that this PyTorch can load: {reason}") from error


def _checked_copy(path: Path) -> io.BytesIO:
    if path.is_symlink() or not path.is_file():
        raise ProgramError(f"{path} is missing, or is no file; give a folder that fairseq-depthwise export wrote")
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as checked:
        entries = archive.infolist()
        if len({entry.filename for entry in entries}) < len(entries):
            raise ProgramError(f"{path} is refused: it has two files of one name in it")
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                raise ProgramError(f"{path} is refused: {entry.filename} in it is compressed, which export never does")
            content = archive.read(entry)  # compares the checksum
            _check(path, entry.filename, content)
            checked.writestr(entry.filename, content)
    copy.seek(0)
    return copy


def _check(path: Path, name: str, content: bytes) -> None:
    """Raise :class:`ProgramError` unless a file in the archive may be given to torch."""
    _, _, inside = name.partition("/") if "/" in name else ("", "", name)
    # torch takes a tensor that has no bytes for one of zeros.
    if (_NUMBERS.fullmatch(inside) and content) or (inside in _NOTES and len(content) <= 100):
        return
    if inside in _INPUTS and not content:
        return
    if inside in _JSON:
        document = json.loads(content)
        for key, value in _parts("", document):
            text_is_plain = not isinstance(value, str) or _FORMS.get(key, _WORD.fullmatch)(value)
            pickled = key == "use_pickle" and value is not False
            if key in _REFUSED or pickled or not text_is_plain or not _WORD.fullmatch(key):
                raise ProgramError(f"{path} is refused: {key[:60]!r} in {name} is nothing that export writes")
    elif inside in _PICKLES and zipfile.is_zipfile(io.BytesIO(content)):  # of PyTorch before 2.9
        torch.load(io.BytesIO(content), weights_only=True)
    else:
        raise ProgramError(f"{path} is refused: {name} in it is none of what export writes, and could run as code")


def _parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all values within a document, each with the nearest key."""
    yield key, value
    if isinstance(value, dict):
        for inner, content in value.items():
            yield from _parts(inner, content)
    elif isinstance(value, list):
        for content in value:
            yield from _parts(key, content)


def _is_plain_tree(text: str) -> object:
    """Return whether arguments and results are tuples, lists and dictionaries, and no class that would be imported."""
    kinds = {"builtins.tuple", "builtins.list", "builtins.dict", "null", "[]", "type", "context", "children_spec"}
    return kinds >= set(re.findall(r'"((?:[^"\\]|\\.)*)"', text)) and re.sub(r'"(?:[^"\\]|\\.)*"', "", text).isascii()


#: Tensors as they are in memory, and what says how the archive was made.
_NUMBERS = re.compile(r"data/(weights/weight|constants/tensor)_\d+")
_NOTES = {"archive_format", "archive_version", "byteorder", "version", ".data/version", ".data/serialization_id"}

#: The operations and the shapes, in the two forms that PyTorch 2.4 to 2.13 write.
_JSON = {
    "models/model.json",
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
    "serialized_exported_program.json",
}

#: Example inputs, which torch would unpickle: there are none.
_INPUTS = {"data/sample_inputs/model.pt", "serialized_example_inputs.pt"}

#: Tensors as older releases write them, which a restricted unpickler can read.
_PICKLES = {"data/weights/model.pt", "data/constants/model.pt", "serialized_state_dict.pt", "serialized_constants.pt"}

#: Arguments that are functions, objects, or text such as the name of a file.
_REFUSED = {"as_string", "as_strings", "as_operator", "as_graph", "as_custom_obj"}

_WORD = re.compile(r"[\w.+-]*", re.ASCII)
_SIZE = re.compile(
    r"(Pow\(Symbol\('[a-z]\d+'(, [a-z]+=True)*\), Integer\(\d\)\)|[su]\d+\*\*\d(?!\d)"
    r"|Symbol\('[a-z]\d+'(, [a-z]+=True)*\)|(Add|Mul|Min|Max|Mod|PythonMod|FloorDiv|CleanDiv|Integer)\("
    r"|[su]\d+(?!\d)|\d{1,12}(?!\d)|\*(?!\*)|[-+/(), ])*",
    re.ASCII,
)

#: The operators of ATen that export writes, those that PyTorch before 2.6 writes in their place, and some that compute
#: each element by itself, for other options.
_DEFAULT = {
    "_assert_tensor_metadata", "_log_softmax", "_softmax", "_to_copy", "_unsafe_view", "abs", "addcmul", "addmm",
    "alias", "amax", "arange", "baddbmm", "bitwise_not", "bmm", "cat", "chunk", "clamp", "clone", "contiguous", "cos",
    "cumsum", "embedding", "erf", "exp", "expand", "expand_as", "flip", "floor_divide", "full", "full_like", "gather",
    "gelu", "glu", "index_select", "layer_norm", "linear", "log", "logical_and", "logical_not", "logical_or",
    "logsumexp", "matmul", "minimum", "mm", "native_layer_norm", "neg", "new_zeros", "numpy_T", "ones", "ones_like",
    "permute", "promote_types", "reciprocal", "relu", "relu_", "repeat", "reshape", "rms_norm", "rsqrt",
    "scalar_tensor", "scatter_add", "sigmoid", "sigmoid_", "silu", "sin", "softplus", "split_with_sizes", "sqrt",
    "stack", "sum", "sym_numel", "t", "tanh", "topk", "type_as", "unsqueeze", "view", "zeros", "zeros_like",
}  # fmt: skip
OPERATORS = frozenset({f"{name}.default" for name in _DEFAULT} | {
    "__and__.Tensor", "__or__.Tensor", "add.Scalar", "add.Tensor", "add_.Tensor", "arange.start_step",
    "bitwise_and.Tensor", "bitwise_or.Tensor", "div.Tensor", "div.Tensor_mode", "eq.Scalar", "eq.Tensor",
    "flatten.using_ints", "ge.Scalar", "ge.Tensor", "gt.Scalar", "index.Tensor", "le.Scalar", "log_softmax.int",
    "lt.Scalar", "masked_fill.Scalar", "masked_fill_.Scalar", "mean.dim", "mul.Scalar", "mul.Tensor", "mul_.Tensor",
    "ne.Scalar", "ne.Tensor", "pow.Tensor_Scalar", "remainder.Scalar", "rsub.Scalar", "select.int", "slice.Tensor",
    "softmax.int", "split.Tensor", "squeeze.dim", "squeeze.dims", "sub.Tensor", "sub_.Tensor", "sum.dim_IntList",
    "sym_size.int", "to.device", "to.dtype", "to.dtype_layout", "transpose.int", "unbind.int", "unflatten.int",
    "where.Scalar", "where.self",
})  # fmt: skip
_TARGETS = {f"torch.ops.aten.{name}" for name in OPERATORS} | {
    f"_operator.{name}" for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}

#: What is read by something else than the look-up of a name -> whether a text is only what it should be.
_FORMS: dict[str, Callable[[str], object]] = {
    "target": _TARGETS.__contains__,
    **dict.fromkeys(("name", "as_name", "forward_arg_names"), re.compile(r"\w*", re.ASCII).fullmatch),
    "expr_str": _SIZE.fullmatch,
    "guards_code": {""}.__contains__,  # evaluated as Python; there are none
    **dict.fromkeys(("in_spec", "out_spec"), _is_plain_tree),
}
