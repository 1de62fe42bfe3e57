"""Blocks of lines through models that actors of Ray hold, on one machine or on many.

Each actor has two blocks, one that it translates and the next. A block whose actor is lost, with its process, its node
or its network, is given to another; an actor that is lost is replaced as long as the cluster has a place for one.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from fairseq_compat import UserError
from fairseq_compat.errors import mistake
from fairseq_depthwise.text_files import Block

#: What an actor does with a block: the text to write, and what to say on stderr.
Translate = Callable[[Block], tuple[bytes, list[str]]]

#: How often a block is given to an actor, and how often actors may fail to start in a row.
TRIES = 5

#: Blocks that an actor has: the second is there when the first is done.
_BLOCKS_EACH = 2

#: Seconds to wait for: a connection to a cluster, a place for the only actor, and what has been computed already.
_CONNECT, _PLACE, _FETCH = 60.0, 600.0, 120.0

#: The exit status after SIGTERM.
_TERMINATED = 128 + signal.SIGTERM

#: Bytes of the memory in which a Ray that is started here has what actors return; more goes to the disk.
_STORE = 256 << 20

#: Bytes of the name of a folder in which Ray's sockets still have names that the system takes: 107 bytes with theirs.
_LONGEST_PLACE = 107 - len("/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")

#: Seconds between looks at the cluster's size, and at the signals.
_LOOK, _WAIT = 5.0, 1.0


@dataclass(frozen=True)
class Demand:
    """What is asked of the cluster.

    Attributes:
        actors: how many; None for as many as there are places for.
        threads: of an actor, on a CPU.
        gpu: whether actors may have a GPU each, if the cluster has any.
    """

    actors: int | None = None
    threads: int = 1
    gpu: bool = True


@dataclass(frozen=True)
class Loaded:
    """What an actor is given to translate with.

    Attributes:
        translate: a block.
        depends_on: what translations depend on, by name: digests of files.
    """

    translate: Translate
    depends_on: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """What an actor returns.

    Attributes:
        value: what was asked for.
        said: what was written to stderr meanwhile.
        refusal: a sentence for the user, who must change something.
        failure: the end of the traceback of anything else.
    """

    value: Any = None
    said: str = ""
    refusal: str | None = None
    failure: str | None = None


class _Actor:
    """Holds a model. It raises nothing, so that whatever is raised is Ray's: the actor is lost."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # paths that are relative mean the same here, where this machine has the folder
            os.chdir(folder)

    def node(self) -> str:
        import ray

        return str(ray.util.get_node_ip_address())

    def load(self, load: Callable[[], Loaded]) -> Outcome:
        def loaded() -> Mapping[str, str]:
            self._loaded = load()
            return self._loaded.depends_on

        return _outcome(loaded)

    def translate(self, block: Block) -> Outcome:
        return _outcome(lambda: self._loaded.translate(block))


def _outcome(compute: Callable[[], Any]) -> Outcome:
    with redirect_stderr(StringIO()) as said:
        try:
            return Outcome(compute(), said.getvalue())
        except Exception as error:
            if (sentence := mistake(error)) is not None:
                return Outcome(refusal=sentence)
            return Outcome(failure=traceback.format_exc(limit=-3))


# --- the cluster -----------------------------------------------------------------------------------------------------


def require_ray(address: str | None) -> None:
    """Check what can be checked at once.

    Args:
        address: of :func:`ray_cluster`.

    Raises:
        UserError: Ray is not installed, or this is no address.
    """
    host, _, port = (address or "auto").rpartition(":")
    if address not in (None, "auto") and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(
            f"--ray {address} is no address; give HOST:PORT or auto, or nothing to start Ray here, with files before it"
        )
    if importlib.util.find_spec("ray") is None:
        raise UserError("--ray needs ray, which is not installed; pip install 'fairseq-depthwise[ray]'")


@contextmanager
def ray_cluster(address: str | None, demand: Demand) -> Iterator[Any]:
    """Yield Ray's module, connected; on leaving, actors end, and so does all that was started here.

    Args:
        address: ``HOST:PORT`` of a cluster, ``auto`` for the one of this machine; None to start Ray on this machine.
        demand: what is asked for.

    Raises:
        UserError: Ray is missing, or there is no such cluster.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address is None:
        # Nobody else may connect: loopback only, and a token that only the processes started here have. Ray reads this
        # when it is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    elif address != "auto":
        _require_listener(address)
    import ray

    # Ray's own handler for SIGTERM is for its own processes; this one leaves as Ctrl-C does. Ray prints to stdout what
    # happens to nodes, and this command says the same in its own words.
    with _sigterm_raises(), open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            _start_or_connect(ray, address, demand)
            with _sigterm_raises():
                yield ray
        except SystemExit:  # Ray has codes of its own for it
            sys.exit(_TERMINATED)
        finally:
            with _signals_ignored():
                ray.shutdown()


def _start_or_connect(ray: Any, address: str | None, demand: Demand) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "ERROR"}
    here: dict[str, Any] = {}
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cpus = max(cores, (demand.actors or 1) * demand.threads)
        here = {
            "num_cpus": cpus,
            "num_gpus": None if demand.gpu else 0,
            "object_store_memory": _STORE,
            **_short_place(),
        }
    try:
        # Interrupted while it starts, Ray would leave processes behind for a minute.
        with _limited(_CONNECT), _interrupted_later() if here else nullcontext():
            ray.init(address or "local", include_dashboard=False if here else None, **here, **settings)
    except (_TooLong, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        what = f"--ray {address}: no connection to a Ray cluster" if address else "--ray: Ray does not start here"
        raise UserError(f"{what}: {reason}") from error


def _short_place() -> dict[str, str]:
    """Return where Ray is to have its sockets, if their names would be too long for the system in ``TMPDIR``."""
    place = os.path.join(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray")
    return {} if len(os.fsencode(place)) <= _LONGEST_PLACE else {"_temp_dir": "/tmp/ray"}


def _require_listener(address: str) -> None:
    """Refuse an address where nothing answers as Ray does, for which Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            answer = connection.recv(9)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--ray {address} cannot be reached: {getattr(error, 'strerror', None) or error}; give the address that "
            "ray start --head has printed"
        ) from error
    if len(answer) < 4 or answer[3] != 4:  # the frame with which each server of gRPC begins
        raise UserError(f"--ray {address} is no Ray cluster; give the address that ray start --head has printed")


class _TooLong(BaseException):
    """No Exception, which Ray would take for a reason to try again."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise after some time, where signals can be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_long(*_: object) -> None:
        raise _TooLong(f"none within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait for the end of what is done here."""
    interrupts: list[int] = []
    with _handling({signal.SIGINT: lambda number, frame: interrupts.append(number)}):
        yield
    if interrupts:
        raise KeyboardInterrupt


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    with _handling({signal.SIGTERM: lambda *_: sys.exit(_TERMINATED)}):
        yield


@contextmanager
def _signals_ignored() -> Iterator[None]:
    with _handling({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_IGN}):
        yield


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the actors ------------------------------------------------------------------------------------------------------


@dataclass
class _Member:
    """An actor, and what it has been asked for.

    Attributes:
        handle: Ray's.
        since: when it was asked for.
        state: placing, loading or ready.
        node: its address, once it is placed.
        pending: the answers that are to come, in order, each with its block if it is one.
    """

    handle: Any
    since: float
    state: str = "placing"
    node: str = ""
    pending: deque[tuple[Any, Block | None]] = field(default_factory=deque)


class ActorPool:
    """Actors that translate blocks.

    Args:
        ray: of :func:`ray_cluster`.
        demand: what is asked for.
        load: makes an actor ready; it must be importable on every node.
        say: called with what stderr is to show.
    """

    def __init__(self, ray: Any, demand: Demand, load: Callable[[], Loaded], say: Callable[[str], None]) -> None:
        self._ray = ray
        self._demand = demand
        self._load = load
        self._say = say
        resources = ray.cluster_resources()
        self._unit = "GPU" if demand.gpu and resources.get("GPU", 0) >= 1 else "CPU"
        self._actor = ray.remote(_Actor).options(
            num_cpus=demand.threads,
            num_gpus=int(self._unit == "GPU"),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        self._members: list[_Member] = []
        self._most, self._looked = 1, -_LOOK
        self._depends_on: Mapping[str, str] | None = None
        self._tries: Counter[tuple[int, int]] = Counter()
        self._failed_starts = 0
        self._again: deque[Block] = deque()

    @property
    def working(self) -> int:
        """Actors that have their model."""
        return sum(member.state == "ready" for member in self._members)

    def first_load(self) -> Mapping[str, str]:
        """Load the first model, which makes what the others need only once, and return what translations depend on.

        Raises:
            UserError: it cannot be loaded, or there is no place for it.
        """
        while self._depends_on is None:
            self._start(1)
            self._receive(lambda block, text: None)
        return self._depends_on

    def translate(self, blocks: Iterator[Block], done: Callable[[Block, bytes], None]) -> Iterator[None]:
        """Translate blocks, and yield from time to time.

        Args:
            blocks: read a few ahead, for every actor.
            done: called with a block and its translations, in any order.

        Raises:
            UserError: text or model are refused, a block has cost too many actors, or there is no place for an actor.
        """
        ahead: deque[Block] = deque()
        while True:
            self._look()
            while len(ahead) + len(self._again) < self._most and (block := next(blocks, None)) is not None:
                ahead.append(block)
            in_work = sum(len(member.pending) for member in self._members if member.state == "ready")
            if not (ahead or self._again or in_work):
                return
            self._start(min(self._most, in_work + len(ahead) + len(self._again)))
            self._give(ahead)
            self._receive(done)
            yield

    def _look(self) -> None:
        """Ask how many actors there may be: nodes come and go."""
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        each = 1 if self._unit == "GPU" else self._demand.threads
        places = int(self._ray.cluster_resources().get(self._unit, 0)) // each
        self._most = self._demand.actors or max(1, places)

    def _start(self, wanted: int) -> None:
        while len(self._members) < wanted:
            handle = self._actor.remote(os.getcwd())
            member = _Member(handle, time.monotonic())
            member.pending.append((handle.node.remote(), None))
            self._members.append(member)

    def _give(self, ahead: deque[Block]) -> None:
        """Give blocks to actors; each has one before any has two."""
        for most in range(1, _BLOCKS_EACH + 1):
            for member in self._members:
                if member.state == "ready" and len(member.pending) < most and (self._again or ahead):
                    block = self._again.popleft() if self._again else ahead.popleft()
                    member.pending.append((member.handle.translate.remote(block), block))

    def _receive(self, done: Callable[[Block, bytes], None]) -> None:
        """Wait a little for answers, and take them."""
        by_answer = {member.pending[0][0]: member for member in self._members if member.pending}
        ready, _ = self._ray.wait([*by_answer], num_returns=1, timeout=_WAIT)
        for answer in ready:
            member = by_answer[answer]
            try:
                outcome = self._ray.get(answer, timeout=_FETCH)
            except self._ray.exceptions.RayError as error:
                self._lose(member, _first_line(error))
                continue
            _, block = member.pending.popleft()
            if member.state == "placing":
                member.state, member.node = "loading", outcome
                member.pending.append((member.handle.load.remote(self._load), None))
            elif outcome.refusal is not None:
                raise UserError(f"{outcome.refusal}{'' if block else self._where(member)}")
            elif outcome.failure is not None:
                self._say(outcome.failure.rstrip())
                member.pending.appendleft((answer, block))
                self._lose(member, outcome.failure.rstrip().rpartition("\n")[2])
            elif block is None:
                self._take(member, outcome)
            else:
                text, warnings = outcome.value
                for warning in warnings:
                    self._say(warning)
                done(block, text)
        self._require_place()

    def _take(self, member: _Member, outcome: Outcome) -> None:
        """Let an actor that has its model begin."""
        member.state = "ready"
        self._failed_starts = 0
        if self._depends_on is None:
            self._depends_on = outcome.value
            self._say(outcome.said.rstrip())
        different = [name for name, value in self._depends_on.items() if outcome.value.get(name) != value]
        if different:
            raise UserError(
                f"{', '.join(different)}: not the same{self._where(member)} as on other nodes; copy it there"
            )

    def _lose(self, member: _Member, reason: str) -> None:
        """Take an actor out, and have its blocks translated by others; the one that it was at may be the cause."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(member.handle)
        self._members.remove(member)
        blocks = [block for _, block in member.pending if block is not None]
        if not blocks and member.state != "ready":
            self._failed_starts += 1
            if self._failed_starts >= TRIES:
                raise UserError(f"--ray: {TRIES} actors in a row have ended before they had the model: {reason}")
            self._say(f"an actor{self._where(member)} has ended before it had the model: {reason}")
            return
        for block in blocks[:1]:
            self._tries[block.file, block.number] += 1
            if self._tries[block.file, block.number] >= TRIES:
                raise UserError(
                    f"{block}: {TRIES} actors were lost while they translated these lines ({reason}); a smaller "
                    "--buffer-lines or --max-tokens takes less memory"
                )
        self._again.extend(blocks)
        self._say(f"an actor{self._where(member)} is lost; its {len(blocks)} blocks are translated again: {reason}")

    def _require_place(self) -> None:
        waiting = [member.since for member in self._members if member.state == "placing"]
        if waiting and len(waiting) == len(self._members) and time.monotonic() - min(waiting) > _PLACE:
            unit = f"{self._demand.threads} CPU{' and a GPU' if self._unit == 'GPU' else ''}"
            raise UserError(
                f"--ray: for {_PLACE:g} seconds no node had {unit} free for an actor; end what else is running there, "
                "or ask for less with --threads or --cpu"
            )

    def _where(self, member: _Member) -> str:
        return f" on {member.node}" if member.node else ""


def _first_line(error: Exception) -> str:
    """Return the line of Ray's report that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
