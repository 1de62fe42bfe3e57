"""Where this user's cache is: a folder for what may be deleted at any time, such as tracebacks and compiled graphs."""

from __future__ import annotations

import os


def user_cache() -> str:
    """Return the folder for this user's cache, which may not exist yet.

    It is ``$XDG_CACHE_HOME``, else ``~/.cache``, else a folder in ``$TMPDIR`` or ``/tmp``. The last is for containers
    that run with a user id without an account: their home is unknown, or it is ``/``, where they may not write.

    Anybody could have made the folder in ``/tmp`` before: a caller that runs code from it must check its owner.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return named
    home = os.path.expanduser("~")  # "~" itself if the home is unknown
    cache = os.path.join(home, ".cache")
    # A missing cache folder will be made in the home.
    is_writable = os.access(cache if os.path.isdir(cache) else home, os.W_OK)
    if os.path.isabs(home) and is_writable:
        return cache
    # Not tempfile.gettempdir(), which falls back to the current folder if no other is writable.
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"cache-{os.getuid()}")
