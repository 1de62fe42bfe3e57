"""Records what a file was computed from, in ``FILE.made_of.json`` beside it, so that it is made again if that changes.

Inputs are compared by digest: path and date may stay the same when another file is copied there with its date.
For scripts, ``python made_of.py TEXT...`` prints one digest of files, folders, and archives of texts.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from recipe_step import run_step, write_json
from text_streams import place_of

from fairseq_compat.provenance import file_digest

#: Name of an input -> its digest, or for options their values.
Inputs = Mapping[str, object]


def digests(files: Iterable[Path | str]) -> dict[str, str]:
    """Return the digest of each file by its name without folders."""
    return {Path(file).name: file_digest(str(file)) for file in files}


def digests_in(words: Iterable[object]) -> list[str]:
    """Return words of a command line, with files replaced by their digests."""
    digested = []
    for word in map(str, words):
        digested.append(file_digest(word) if Path(word).is_file() else word)
    return digested


def digest_of_all(names: Iterable[str]) -> str:
    """Return one digest of texts and folders: of the contents of all their files, except logs, in order."""
    digest = hashlib.sha256()
    for name in names:
        path = Path(place_of(name)[0])
        files = [path]
        if path.is_dir():
            # Logs contain dates, so they always differ.
            files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".log")
        for file in files:
            digest.update(f"{file_digest(str(file))}\n".encode())
    return digest.hexdigest()[:16]


def is_made_of(file: Path, inputs: Inputs) -> bool:
    """Return whether a file exists, is complete, and was made from these inputs."""
    try:
        recorded = json.loads(_record_of(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return file.exists() and recorded == inputs


@contextmanager
def making(file: Path, inputs: Inputs) -> Iterator[None]:
    """Record, at the end of the block, that a file was made from these inputs; until then nothing is recorded."""
    record = _record_of(file)
    # A file that is being made, or whose making failed, counts as missing.
    record.unlink(missing_ok=True)
    yield
    write_json(record, inputs)


def _record_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.made_of.json")


if __name__ == "__main__":
    run_step(lambda: print(digest_of_all(sys.argv[1:])))
