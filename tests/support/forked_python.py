"""A Python for programs of the tests that starts at once: forks of an interpreter that has imported fairseq and us.

Importing PyTorch and fairseq takes longer than what most commands of the tests do. ``ForkedPython`` makes a folder with
a ``python`` that replaces that of this environment, and with the environment's commands beside it: each asks a server
for a fork that runs the script, module or command with its arguments, environment, folder, streams and other inherited
files, ends with its status, and has it killed if it is killed itself. Tests about starting use the real interpreter.
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
from pathlib import Path
from typing import Any, NoReturn

#: Commands that are forked, beside ``python``.
COMMANDS = (
    "fairseq-depthwise", "fairseq-eval-lm", "fairseq-generate", "fairseq-hydra-train", "fairseq-interactive",
    "fairseq-preprocess", "fairseq-score", "fairseq-train", "fairseq-validate", "sacrebleu", "sacremoses", "torchrun",
)  # fmt: skip

#: What replaces an interpreter; `-S` and `-I` make it start in a hundredth of a second. Subword-nmt, which closes the
#: streams that a fork shares, gets the real one.
CLIENT = """#!{python} -IS
import json, os, socket, sys

if any("subword_nmt." in argument for argument in sys.argv[1:]):
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


class ForkedPython:
    """The ``folder`` that has ``python`` and the commands, and its server."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        self.python, address = self.folder / "python", str(self.folder / "server")
        programs = Path(sys.executable).parent
        for name in ("python", *COMMANDS):
            script = [] if name == "python" else [str(programs / name)]
            given = {"python": sys.executable, "address": address, "itself": str(self.python), "script": script}
            (self.folder / name).write_text(CLIENT.format(**given), encoding="utf-8")
            (self.folder / name).chmod(0o755)
        (self.folder / "subword-nmt").symlink_to(programs / "subword-nmt")
        command = [sys.executable, __file__, address]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n", "the server of forks did not start"

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()
        self._place.cleanup()


def serve(address: str) -> socket.socket:
    """Import what takes long, and fork for every connection; return it in the fork."""
    import sacrebleu  # noqa: F401  # for the forks, as the other imports
    import sacremoses  # noqa: F401  # as above
    import torch._dynamo  # the first optimizer of a process imports it
    import torch.utils.tensorboard  # noqa: F401  # as sacrebleu
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import fairseq_depthwise  # noqa: F401  # as sacrebleu

    # The first configuration of a process takes hydra a second longer than the next.
    parser = options.get_training_parser()
    convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["nowhere", "--arch", "mute_transformer"]))
    gc.freeze()  # forks do not copy what their collectors would look at
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks here
        listener.settimeout(1)
        while os.getppid() == parent:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                if os.fork() == 0:
                    return connection
                connection.close()
    sys.exit()


def become(connection: socket.socket) -> list[str]:
    """Fork again, and return in that process, with all that was asked for, what is to be run; the other one waits."""
    connection.setblocking(True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 32)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    child = os.fork()
    if child > 0:
        if connection in select.select([connection, os.pidfd_open(child)], [], [])[0]:
            os.kill(child, signal.SIGKILL)  # the one that asked has been killed
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.close()
    request: dict[str, Any] = json.loads(data)
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
    return [argument for argument in request["arguments"] if argument != "-u"]


def run(first: str, *rest: str) -> None:
    """Run code, a module or a script as the interpreter does that is started with it."""
    sys.argv = list(rest) if first == "-m" else [first, *rest[first == "-c" :]]
    sys.path[0] = os.path.dirname(first) if os.sep in first else os.getcwd()
    if os.environ.get("PYTHONSAFEPATH"):
        del sys.path[0]
    if first == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        exec(rest[0], {"__name__": "__main__"})
    else:
        runpy.run_path(first, run_name="__main__")


def run_to_the_end(arguments: list[str]) -> NoReturn:
    """Run something, and end as Python does after it, but without taking down what was imported."""
    status: Any = 0
    try:
        run(*arguments)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    run_to_the_end(become(serve(sys.argv[1])))
