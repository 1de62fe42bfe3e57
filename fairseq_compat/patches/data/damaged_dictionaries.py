"""A damaged dictionary is a bare ``Exception``, ``ValueError`` or ``RuntimeError``, which may not name the file.

Here it is a sentence that does.
"""

import functools
from collections.abc import Iterator
from typing import Any

from fairseq_compat.errors import UserError, first_line


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.Dictionary.add_from_file

    @functools.wraps(original)
    def add_from_file(self: Any, file: Any) -> None:
        try:
            original(self, file)
        except (UserError, OSError):
            raise
        except Exception as error:
            if not isinstance(file, str):  # the call for the path comes after it
                raise
            raise UserError(f"{file} is no dictionary of fairseq, or damaged: {first_line(error)}") from error

    module.Dictionary.add_from_file = add_from_file
