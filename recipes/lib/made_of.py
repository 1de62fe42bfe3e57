"""What a file was computed from, in ``FILE.made_of.json`` beside it, so that it is computed anew where that changes.

Inputs are compared by their digests: paths and dates are the same after another file was copied there with its date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fairseq_compat.files import atomic_write
from fairseq_compat.provenance import file_digest

#: Name of an input -> its digest or, of options, their values.
Inputs = Mapping[str, object]


def digests(files: Iterable[Path | str]) -> dict[str, str]:
    """Return the digest of each file by its name without folders."""
    return {Path(file).name: file_digest(str(file)) for file in files}


def digests_in(words: Iterable[object]) -> list[str]:
    """Return words of a command line, with digests in the place of files."""
    return [file_digest(str(word)) if Path(str(word)).is_file() else str(word) for word in words]


def is_made_of(file: Path, inputs: Inputs) -> bool:
    """Return whether a file is there, whole, and was made of these inputs."""
    try:
        recorded = json.loads(_record_of(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return file.exists() and recorded == inputs


@contextmanager
def making(file: Path, inputs: Inputs) -> Iterator[None]:
    """Record at the end of the block that a file was made in it of these inputs; until then nothing is recorded."""
    record = _record_of(file)
    record.unlink(missing_ok=True)
    yield
    with atomic_write(record) as written:
        written.write((json.dumps(inputs, indent=2) + "\n").encode())


def _record_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.made_of.json")
