"""A page of several programs: each owns the section that begins with a comment with its name.

A section goes from ``<!-- name -->`` to the next such comment or the end of the page. Writing one leaves the others,
and what is above the first, as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

from fairseq_compat.files import atomic_write


def section(name: str, text: str) -> str:
    """A section as it stands on a page."""
    return f"<!-- {name} -->\n\n{text.strip()}\n"


def with_section(page: str, name: str, text: str) -> str:
    """The page with the section's new text in its old place, or at the end if the page has not got it."""
    before, _, rest = page.partition(f"<!-- {name} -->\n")
    after = re.search(r"^<!-- [\w-]+ -->$", rest, re.MULTILINE)
    parts = (before, section(name, text), rest[after.start() :] if after else "")
    return "\n".join(part.strip("\n") + "\n" for part in parts if part.strip())


def write_section(path: Path, name: str, text: str) -> None:
    """Write a section into the file of a page, which is made if it is missing."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    with atomic_write(path) as file:
        file.write(with_section(page, name, text).encode())
