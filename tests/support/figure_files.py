"""What must be true of a figure that was written."""

from __future__ import annotations

from pathlib import Path

_BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


def figure_in(path: Path) -> bytes:
    """The content of a figure, which is of the kind that its name says, and not blank where it has pixels."""
    content = path.read_bytes()
    assert content.startswith(_BEGINNINGS[path.suffix])
    if path.suffix == ".png":
        from matplotlib.image import imread

        assert imread(path).std() > 0.05
    return content
