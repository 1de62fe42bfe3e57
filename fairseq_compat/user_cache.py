"""The folder for what may be deleted at any time: tracebacks, compiled graphs."""

from __future__ import annotations

import os


def user_cache() -> str:
    """Return ``$XDG_CACHE_HOME``, or ``~/.cache``, or a folder of this user's among temporary files.

    A container's user without an account has no home (``~`` stands for nothing), or one that nobody may write to
    (``/``). Nothing is made here, and whoever runs what is in a temporary folder has to check whose it is.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return named
    home = os.path.expanduser("~")
    cache = os.path.join(home, ".cache")
    parent = cache if os.path.isdir(cache) else home
    if os.path.isabs(home) and os.access(parent, os.W_OK):
        return cache
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"cache-{os.getuid()}")
