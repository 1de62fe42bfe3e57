"""A Python for programs of the tests that starts at once: forks of interpreters that have imported fairseq.

Importing PyTorch and fairseq, the first optimizer and the first configuration of hydra take longer than what most
commands of the tests do. ``ForkedPython`` makes a folder with a ``python`` that replaces that of this environment: it
asks a server for a fork that runs the script, module or command with its arguments, environment, folder, streams and
other inherited files, ends with its status, and has it killed if it is killed itself. The folder also has the
environment's commands, for programs that look for those next to their interpreter. fairseq's own commands get a fork
without the plugin, all others one with it. Tests about starting use the real interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

#: What replaces an interpreter; `-S` and `-I` make it start in a hundredth of a second.
CLIENT = """#!{python} -IS
import json, os, socket, sys

if any({unforked!r} in argument for argument in sys.argv[1:]):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])

def is_inherited(number):
    try:
        return os.get_inheritable(number)
    except OSError:  # what listed the numbers
        return False

files = sorted({{0, 1, 2, *filter(is_inherited, map(int, os.listdir("/dev/fd")))}})
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = {{"arguments": {script!r} + sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
request |= {{"python": {itself!r}, "files": files}}
socket.send_fds(server, [json.dumps(request).encode() + b"\\n"], files)
status = int(server.makefile().readline() or 255)
sys.exit(status if status >= 0 else 128 - status)
"""

#: fairseq's commands, which may not know the plugin before they are given `--user-dir`.
STOCK = (
    "fairseq-eval-lm", "fairseq-generate", "fairseq-hydra-train", "fairseq-interactive", "fairseq-preprocess",
    "fairseq-score", "fairseq-train", "fairseq-validate",
)  # fmt: skip
#: Other commands that programs of the tests run.
PLUGGED = ("fairseq-depthwise", "sacrebleu", "sacremoses", "torchrun")
#: A command with its module, which closes the streams that a fork shares.
UNFORKED, UNFORKED_MODULE = "subword-nmt", "subword_nmt."


class ForkedPython:
    """The ``folder`` that has ``python`` and the commands, and its server."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        self.python = self.folder / "python"
        real = Path(sys.executable)
        addresses = {plugged: str(self.folder / f"server{plugged:d}") for plugged in (False, True)}
        for name in ("python", *STOCK, *PLUGGED):
            path = self.folder / name
            client = CLIENT.format(
                python=str(real), unforked=UNFORKED_MODULE, address=addresses[name not in STOCK],
                itself=str(self.python), script=[] if name == "python" else [str(real.parent / name)],
            )  # fmt: skip
            path.write_text(client, encoding="utf-8")
            path.chmod(0o755)
        (self.folder / UNFORKED).symlink_to(real.parent / UNFORKED)
        # A copy of the environment, without what one test sets: requests bring their own.
        self._server = subprocess.Popen(
            [sys.executable, __file__, *addresses.values()], stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        for _ in addresses:
            assert self._server.stdout.readline() == "ready\n", "the server of forks did not start"

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()
        self._place.cleanup()


def serve(stock_address: str, plugged_address: str) -> None:
    """Import what takes long, and serve at two addresses: without the plugin, and in a child process with it."""
    import sacrebleu  # noqa: F401  # for the forks, as the other imports
    import sacremoses  # noqa: F401  # as above
    import torch._dynamo  # the first optimizer of a process imports it
    import torch.utils.tensorboard  # noqa: F401  # as sacrebleu

    _configure("transformer")
    parent = os.getpid()
    if os.fork() == 0:
        import fairseq_depthwise  # noqa: F401  # as above

        _configure("mute_transformer")
        _listen(plugged_address, parent)
    _listen(stock_address)


def _configure(arch: str) -> None:
    """Make a configuration with hydra: the first of a process takes it a second longer than the next."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), ["nowhere", "--arch", arch])
    )


def _listen(address: str, parent: int | None = None) -> NoReturn:
    """Fork for every connection; a fork waits for its script's end and answers with the status."""
    gc.freeze()  # forks do not copy what their collectors would look at
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks here
        listener.settimeout(1)
        while parent in (None, os.getppid()):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.setblocking(True)
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()
    os._exit(0)


def _answer(connection: socket.socket) -> NoReturn:
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 32)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        connection.close()
        _become(json.loads(data), files)
    if connection in select.select([connection, os.pidfd_open(child)], [], [])[0]:
        os.kill(child, signal.SIGKILL)  # the one that asked has been killed
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    # Out of the way first: the number of one may be where another belongs.
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 100) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(aside, request["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.executable = request["python"]
    first, *rest = (argument for argument in request["arguments"] if argument != "-u")
    _end_as({"-c": _code, "-m": _module}.get(first, lambda given: _script(first, given)), rest)


def _script(program: str, arguments: list[str]) -> None:
    """Run a script as the interpreter does that is started with it."""
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(program)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = program
    exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)


def _code(arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments[1:]]
    exec(arguments[0], types.ModuleType("__main__").__dict__)


def _module(arguments: list[str]) -> None:
    sys.argv = arguments
    sys.path[0] = os.getcwd()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _end_as(run: Callable[[list[str]], None], arguments: list[str]) -> NoReturn:
    """Run something with this process's streams, and end as Python does after it, with its status."""
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115  # until the end
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115  # until the end
    status = 0
    try:
        run(arguments)
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        threading._shutdown()  # what Python does at the end: wait for threads,
        atexit._run_exitfuncs()  # and run what was registered
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    serve(*sys.argv[1:])
