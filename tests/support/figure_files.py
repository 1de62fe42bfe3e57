"""What must be true of a figure that was written."""

from __future__ import annotations

from pathlib import Path

_BEGINNINGS = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


def figure_in(path: Path) -> bytes:
    """The content of a figure, which is of the kind that its name says, and not blank where it has pixels.

    An SVG serves light and dark pages: nothing in it is black on both.
    """
    content = path.read_bytes()
    assert content.startswith(_BEGINNINGS[path.suffix])
    if path.suffix == ".png":
        from matplotlib.image import imread

        assert imread(path).std() > 0.05
    if path.suffix == ".svg":
        assert b"prefers-color-scheme: dark" in content
        assert b"#000000" not in content
    return content
