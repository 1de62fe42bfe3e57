"""Find files whose paths a training recorded: beside the checkpoint, rather than in the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_compat.provenance import digest_of_file

#: Options of multilingual tasks that name files.
FILES_OF_TASKS = ("lang_dict", "source_dict", "target_dict", "fixed_dictionary")


def places(path: str, checkpoint: str) -> Iterator[str]:
    """Yield the paths at which a file may be: relative to the checkpoint's folder, to those above, and last as given.

    The current folder comes last, since its files need not belong to a checkpoint elsewhere.
    """
    # The folders above: "data-bin/dict.txt" is beside "checkpoints/", in the folder where the training was started.
    if not os.path.isabs(path):
        for folder in Path(os.path.abspath(checkpoint)).parents:
            yield str(folder / path)
    yield path


def recorded_file(path: str, checkpoint: str, folders: Sequence[str] = (), digest: object = None) -> str | None:
    """Return the present path of a recorded file, perhaps in one of the ``folders``; None if it does not exist.

    Of several candidates it is the first one with the recorded ``digest``, or else the first one: the caller compares
    it with the record.
    """
    name = os.path.basename(path)
    # The folders are of data or of a whole model: there, the name of the file is enough.
    candidates = [*places(path, checkpoint), *(os.path.join(folder, name) for folder in folders)]
    files = [candidate for candidate in candidates if os.path.isfile(candidate)]
    if len(files) > 1 and digest is not None:
        for file in files:
            if digest_of_file(file) == digest:
                return file
    return files[0] if files else None
