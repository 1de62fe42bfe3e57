"""Where a file is now whose path a training recorded: beside the checkpoint rather than in the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_compat.provenance import digest_of_file

#: Options of tasks of many languages that are files.
FILES_OF_TASKS = ("lang_dict", "source_dict", "target_dict", "fixed_dictionary")


def places(path: str, checkpoint: str) -> Iterator[str]:
    """Yield a path; a relative one from the checkpoint's folder and from those above, and at last as it is.

    What lies in the folder where a command is called says nothing about a checkpoint that lies elsewhere.
    """
    if not os.path.isabs(path):
        for folder in Path(os.path.abspath(checkpoint)).parents:
            yield str(folder / path)
    yield path


def recorded_file(path: str, checkpoint: str, folders: Sequence[str] = (), digest: object = None) -> str | None:
    """Return where a file is now, perhaps in one of the ``folders``; None where it is nowhere.

    Of several it is the first that has the recorded ``digest``, if there is one, and otherwise the first.
    """
    name = os.path.basename(path)
    candidates = [*places(path, checkpoint), *(os.path.join(folder, name) for folder in folders)]
    files = [candidate for candidate in candidates if os.path.isfile(candidate)]
    if len(files) > 1 and digest is not None:
        for file in files:
            if digest_of_file(file) == digest:
                return file
    return files[0] if files else None
