"""``text.json`` in a folder of data: how its text was made of raw text, so that no command has to repeat it.

``fairseq-depthwise prepare`` and the recipes write it. ``fairseq-train``, ``fairseq-generate`` and
``fairseq-interactive`` take their options of tokenizer and subwords from it (``patches/text_options.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.plain_values import RefusedError, require_plain
from fairseq_compat.provenance import file_digest

#: Its name in the folder.
NAME = "text.json"

#: Of the file; a change that an earlier version would misread gets the next number.
_FORMAT = 1

#: Tokenizers that a record may name -> their options. Others may read files from the network.
_TOKENIZERS = {"moses": ("moses_no_dash_splits", "moses_no_escape"), "moses_normalized": ()}

#: Subwords that a record may name -> their options, of which the first is the file in the folder.
_SUBWORDS = {"subword_nmt": ("bpe_codes", "bpe_separator"), "sentencepiece": ("sentencepiece_model",)}


@dataclass(frozen=True)
class TextRecord:
    """How the text of a folder was made.

    Attributes:
        languages: source and target first.
        tokenizer: its name as "tokenizer", and its options by fairseq's names; empty for none.
        bpe: the same of subwords, with their name as "bpe".
        files: options of ``bpe`` that are files, with their SHA-256.
    """

    languages: tuple[str, ...]
    tokenizer: Mapping[str, Any]
    bpe: Mapping[str, Any]
    files: Mapping[str, str]


def write_text_record(
    folder: str, languages: Sequence[str], tokenizer: Mapping[str, Any], subwords: Mapping[str, Any]
) -> None:
    """Write the record of a folder.

    Args:
        folder: of the data, which has the file of the subwords already.
        languages: source and target first.
        tokenizer: its name as "name", and its options by fairseq's names; empty for none.
        subwords: the same; the option that names a file has its name in the folder.
    """
    described = dict(subwords)
    for option in _SUBWORDS.get(described.get("name", ""), ())[:1]:
        name = described[option]
        described[option] = {"file": name, "sha256": file_digest(os.path.join(folder, name))}
    document = {
        "format": _FORMAT,
        "languages": list(languages),
        "tokenizer": dict(tokenizer) or None,
        "subwords": described or None,
    }
    with atomic_write(os.path.join(folder, NAME)) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")


def read_text_record(folder: str) -> TextRecord | None:
    """Return the record of a folder; None if it has none.

    Raises:
        UserError: it is damaged, of a later version, or the file of the subwords is not the recorded one.
    """
    path = os.path.join(folder, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(document, dict) or type(document.get("format")) is not int or document["format"] < 1:
        raise _damaged(path, "it has no format")
    try:
        # A text such as ${...} would be looked up, in the environment, too.
        require_plain(document)
    except RefusedError as error:
        raise _damaged(path, str(error)) from None
    if document["format"] > _FORMAT:
        raise UserError(
            f"{path} has format {document['format']}, and this version reads {_FORMAT}: a later fairseq-depthwise "
            "wrote it; update this one"
        )
    languages = document.get("languages")
    if not isinstance(languages, list) or not all(isinstance(language, str) for language in languages):
        raise _damaged(path, "it names no languages")
    for language in languages:
        if not _has_dictionary(folder, language):
            raise _damaged(path, f"it names the language {language!r}, of which there is no dictionary beside it")
    tokenizer = _options(path, "tokenizer", document.get("tokenizer"), _TOKENIZERS)
    bpe = _options(path, "bpe", document.get("subwords"), _SUBWORDS)
    files = {}
    for option in _SUBWORDS.get(bpe.get("bpe", ""), ())[:1]:
        bpe[option], files[option] = _file(path, bpe.get(option))
    return TextRecord(tuple(languages), tokenizer, bpe, files)


def _options(path: str, kind: str, described: Any, known: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the options of a part of the record, with its name under ``kind``."""
    if described is None:
        return {}
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise _damaged(path, f"its part for --{kind} has no name")
    options = {name: value for name, value in described.items() if name != "name"}
    for option, value in options.items():
        # What names a file is checked by itself.
        if not isinstance(value, dict) and type(value) is not (str if option == "bpe_separator" else bool):
            raise _damaged(path, f"its option {option} is {value!r}")
    name = described["name"]
    if name not in known or not options.keys() <= set(known[name]):
        raise UserError(
            f"{path} names --{kind} {name} with {', '.join(options) or 'no option'}, which this version does not know; "
            f"it knows {', '.join(known)}"
        )
    return {kind: name, **options}


def _file(path: str, described: Any) -> tuple[str, str]:
    """Return the place and the digest of a file that the record names."""
    name, digest = (described.get(key) for key in ("file", "sha256")) if isinstance(described, dict) else (None, None)
    # Not a file elsewhere on this machine.
    if not isinstance(name, str) or not isinstance(digest, str) or os.path.basename(name) != name or not name:
        raise _damaged(path, "it names no file of subwords")
    file = os.path.join(os.path.dirname(path), name)
    if not os.path.isfile(file):
        raise UserError(f"{path} names {name}, with which the text was split, and {file} is missing; put it back")
    current = file_digest(file)
    if current != digest:
        raise UserError(
            f"{file} is not the file with which the text was split: its SHA-256 begins with {current[:16]}, and {path} "
            f"has {digest[:16]}; put the original back, or prepare the text again"
        )
    return file, digest


def _has_dictionary(folder: str, language: str) -> bool:
    """Return whether a folder has the dictionary of a language, as all folders of fairseq-preprocess do."""
    name = f"dict.{language}.txt"
    return os.path.basename(name) == name and os.path.isfile(os.path.join(folder, name))


def _damaged(path: str, reason: str) -> UserError:
    return UserError(f"{path} is damaged ({reason}); restore it, or prepare the text again")
