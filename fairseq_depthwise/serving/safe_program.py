"""Loads a program that `fairseq-depthwise export` wrote, without running what else a stranger may have put into it.

`torch.export.load` trusts the file that it is given: it unpickles objects, evaluates sizes and conditions as Python,
looks up functions of torch by name, imports classes and loads compiled libraries. Here the file is read first, and is
refused unless everything in it is tensors as plain bytes, operators of ATen, names and sizes. Torch is given a copy of
what was read and of nothing else.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram


class ProgramError(ValueError):
    """A file cannot be used; the message is one sentence that says which, and why."""


def load_program(path: str | Path) -> ExportedProgram:
    """Load the program in a file after looking through it.

    Raises:
        ProgramError: the file is missing or damaged, or has in it what could run as code.
    """
    path = Path(path)
    try:
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
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ProgramError(f"{path} is refused: {entry.filename} in it is compressed, which export never does")
            content = archive.read(entry)  # compares the checksum
            _check(path, entry.filename, content)
            checked.writestr(entry.filename, content)
    copy.seek(0)
    return copy


def _check(path: Path, name: str, content: bytes) -> None:
    """Raise :class:`ProgramError` unless a file in the archive may be given to torch."""
    _, _, inside = name.partition("/") if "/" in name else ("", "", name)
    if _NUMBERS.fullmatch(inside) or (inside in _NOTES and len(content) <= 100):
        return
    if inside in _INPUTS and not content:
        return
    if inside in _JSON:
        _check_value(path, name, "", json.loads(content))
    elif inside in _PICKLES and zipfile.is_zipfile(io.BytesIO(content)):  # of PyTorch before 2.9
        torch.load(io.BytesIO(content), weights_only=True)
    else:
        raise ProgramError(f"{path} is refused: {name} in it is none of what export writes, and could run as code")


def _check_value(path: Path, name: str, key: str, value: Any) -> None:
    if isinstance(value, dict):
        for inner, content in value.items():
            if not _WORD.fullmatch(inner) or inner in _REFUSED or (inner == "use_pickle" and content is not False):
                raise ProgramError(f"{path} is refused: {inner[:60]!r} in {name} could run as code")
            _check_value(path, name, inner, content)
    elif isinstance(value, list):
        for item in value:
            _check_value(path, name, key, item)
    elif isinstance(value, str) and not _FORMS.get(key, _WORD.fullmatch)(value):
        raise ProgramError(f"{path} is refused: {key} in {name} is {value[:60]!r}, which could run as code")


def _is_operator(text: str) -> bool:
    """Return whether a target is an operator of ATen, and no attribute of what operators are looked up in."""
    if not text.startswith("torch.ops.aten."):
        return _FUNCTION.fullmatch(text) is not None
    if not _OPERATOR.fullmatch(text):
        return False
    found: Any = torch.ops.aten
    for name in text.split(".")[3:]:
        found = getattr(found, name, None)
    return isinstance(found, torch._ops.OpOverload)


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
_NAME = re.compile(r"\w*", re.ASCII)
_OPERATOR = re.compile(r"torch\.ops\.aten\.\w+\.\w+", re.ASCII)
_FUNCTION = re.compile(r"torch\.sym_\w+|_operator\.(add|sub|mul|floordiv|mod|neg|eq|ne|lt|le|gt|ge|getitem)", re.ASCII)
_SIZE = re.compile(
    r"(Symbol\('[a-z]\d+'(, [a-z]+=True)*\)|(Add|Mul|Pow|Min|Max|Mod|PythonMod|FloorDiv|CleanDiv|Integer)\("
    r"|[su]\d+(?!\d)|\d{1,12}(?!\d)|[-+*/(), ])*",
    re.ASCII,
)
_CONDITION = re.compile(
    r"(L\['\w+'\]|\.size\(\)\[\d{1,2}\]|(min|max)\(|\b(and|or|not)\b|\d{1,12}(?!\d)|[-+*/()<>=, ])*", re.ASCII
)

#: What is read by something else than the look-up of a name -> whether a text is only what it should be.
_FORMS: dict[str, Callable[[str], object]] = {
    "target": _is_operator,
    "name": _NAME.fullmatch,
    "as_name": _NAME.fullmatch,
    "forward_arg_names": _NAME.fullmatch,
    "expr_str": _SIZE.fullmatch,
    "guards_code": _CONDITION.fullmatch,
    "in_spec": _is_plain_tree,
    "out_spec": _is_plain_tree,
}
