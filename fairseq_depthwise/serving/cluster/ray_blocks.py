"""Translates blocks of lines with models in Ray actors, on one machine or many.

When an actor is lost, with its process, node or network, Ray restarts it and gives it its block again.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, suppress
from functools import cached_property
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.options import require_extra
from fairseq_depthwise.text_files import Block

#: How often a lost actor is restarted; limited, as a block may need more memory than there is.
_RESTARTS = 50

#: Bytes of memory for what actors return, if Ray is started here; more goes to disk.
_STORE = 256 << 20

#: The longest name of a socket in bytes, and the length of what Ray appends to its temporary folder.
_MOST_OF_SOCKET = 107
_RAYS_OWN = len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.10")

#: The function that translates a block, returning text to write and warnings; and digests of the model's files by name.
Loaded = tuple[Callable[[Block], tuple[bytes, list[str]]], Mapping[str, str]]


class _Actor:
    def __init__(self, folder: str, load: Callable[[], Loaded]) -> None:
        with suppress(OSError):  # relative paths then mean the same, if this machine has the folder
            os.chdir(folder)
        self._load = load

    # Not in the constructor: an exception there kills the actor, whereas a task's exception reaches its caller.
    @cached_property
    def _loaded(self) -> Loaded:
        return self._load()

    def depends_on(self) -> tuple[Mapping[str, str], str]:
        # With log_to_driver=False, nothing that actors print reaches the command by itself.
        with redirect_stderr(StringIO()) as messages:
            return self._loaded[1], messages.getvalue()

    def translate(self, block: Block) -> tuple[Block, bytes, list[str], Mapping[str, str]]:
        translate, depends_on = self._loaded
        return block, *translate(block), depends_on


def require_ray(address: str | None) -> None:
    """Raise UserError if Ray is not installed, or nothing listens at the address, where Ray would wait for minutes."""
    require_extra("ray", "ray")
    if address in (None, "auto"):
        return
    # IPv6 addresses are in brackets, as in [::1]:6379.
    host, _, port = str(address).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"--ray {address}: no Ray cluster there ({error}); give the HOST:PORT that ray start --head has printed, "
            "or nothing to start Ray here, with files before it"
        ) from error


def _temporary_folder() -> str:
    """Return Ray's default folder for its files."""
    return os.path.abspath(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())


def _folder_for_sockets() -> str:
    """Return a temporary folder whose name is short enough for Ray's sockets.

    Raises:
        UserError: there is none.
    """
    folders = [_temporary_folder(), "/tmp", "/var/tmp", "/dev/shm"]
    for folder in folders:
        if len(os.fsencode(folder)) + _RAYS_OWN <= _MOST_OF_SOCKET and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise UserError(
        f"TMPDIR={folders[0]} is too long a name for Ray's sockets, and {', '.join(folders[1:])} cannot be written to; "
        "give a shorter TMPDIR"
    )


class Translators:
    """Actors of a cluster, each with the model: ``actors``, or as many as fit; on GPUs if the cluster has any.

    If ``address`` is None, Ray is started here. ``messages`` is what the first actor wrote to stderr.
    """

    def __init__(
        self, address: str | None, load: Callable[[], Loaded], actors: int | None, threads: int, gpu: bool
    ) -> None:
        # 1. Connect to a cluster, or start Ray here; it reads these variables while it is imported.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        here: dict[str, Any] = {}
        if address is None:
            # Nobody else may connect: loopback only, with a token for the processes that are started here.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            cpus = actors and actors * threads
            here = {"num_cpus": cpus, "object_store_memory": _STORE, "include_dashboard": False}
        self._folder = TemporaryDirectory(prefix="ray-", dir=_folder_for_sockets(), ignore_cleanup_errors=True)
        # Sockets go into the folder with the short name, objects spilled to disk into the user's.
        if address is None and os.path.dirname(self._folder.name) != _temporary_folder():
            here |= {"_temp_dir": self._folder.name, "object_spilling_directory": _temporary_folder()}
        import ray
        from ray.util import ActorPool

        current = os.getcwd()
        # Actors import from this process's current folder before any other, so it must not be a stranger's.
        os.chdir(self._folder.name)
        try:
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **here)
        finally:
            os.chdir(current)
        self._signals: list[int] = []  # recorded only: an exception inside Ray's library may end in SIGABRT
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._signals.append(number))
        # 2. Start the actors. If the model cannot be loaded, the first of them fails here.
        self._shutdown = ray.shutdown
        on_gpu = gpu and ray.cluster_resources().get("GPU", 0) >= 1
        kind = ray.remote(_Actor).options(
            num_cpus=threads,
            num_gpus=int(on_gpu),
            max_restarts=_RESTARTS,
            # Retry without limit: _RESTARTS is the limit.
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )
        self._pool = ActorPool([kind.remote(os.getcwd(), load)])
        # Alone, so that graphs and other cached files are made only once.
        self._pool.submit(lambda actor, _: actor.depends_on.remote(), None)
        self.depends_on, self.messages = self._next()
        resources = ray.cluster_resources()
        # As of now: machines that join later are not counted.
        places = int(resources["GPU"] if on_gpu else resources["CPU"] // threads)
        self.actors = actors or max(1, places)
        for _ in range(self.actors - 1):
            self._pool.push(kind.remote(os.getcwd(), load))

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
        self._shutdown()
        self._folder.cleanup()

    def translate(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, bytes, list[str]]]:
        """Yield blocks in any order, with translations and warnings; a block is read when an actor becomes free."""
        while True:
            while self._pool.has_free():
                if (block := next(blocks, None)) is not None:
                    self._pool.submit(lambda actor, block: actor.translate.remote(block), block)
                else:
                    self._pool.pop_idle()  # frees its place for an actor that Ray has to restart
            if not self._pool.has_next():
                return
            # Machines read the same paths, but these may not hold the same files.
            done, text, warnings, depends_on = self._next()
            if changed := [name for name, value in self.depends_on.items() if depends_on.get(name) != value]:
                raise UserError(f"{', '.join(changed)}: not the same on all nodes; copy them from this one")
            yield done, text, warnings

    def _next(self) -> Any:
        while True:
            if signal.SIGINT in self._signals:
                raise KeyboardInterrupt
            if self._signals:
                raise SystemExit(128 + signal.SIGTERM)
            # Wake up every second to check for signals.
            with suppress(TimeoutError):
                return self._pool.get_next_unordered(timeout=1)
