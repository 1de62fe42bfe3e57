"""A Python for programs of the tests that starts at once: forks of an interpreter that has imported fairseq.

The scripts of a recipe start Python a dozen times, and each would import PyTorch and fairseq anew. ``ForkedPython``
makes a folder with a ``python`` that stands in for that of this environment: it asks a server for a fork that runs the
script, module or command with its arguments, environment, folder, streams and other files that it has inherited, and
ends with its status. Beside it are stand-ins for the environment's commands, for programs that look for those beside
their interpreter. Tests about starting, killing and several processes use the real interpreter.
"""

from __future__ import annotations

import fcntl
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from command_server import end_as, run_script

#: The stand-in; `-S` and `-I` make it start in a hundredth of a second.
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


#: Commands that programs of the tests run, and one with its module, which closes the streams that a fork shares.
COMMANDS = ("fairseq-depthwise", "fairseq-generate", "fairseq-preprocess", "fairseq-train", "sacrebleu", "sacremoses")
UNFORKED, UNFORKED_MODULE = "subword-nmt", "subword_nmt."


class ForkedPython:
    """The folder and its server, which is started when the folder is asked for."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        folder = Path(self._place.name)
        address, self.python = str(folder / "server"), folder / "python"
        real = Path(sys.executable)
        commands = [real.parent / name for name in COMMANDS]
        own = {"python": str(real), "unforked": UNFORKED_MODULE, "address": address, "itself": str(self.python)}
        for path, script in ((self.python, []), *((folder / command.name, [str(command)]) for command in commands)):
            client = CLIENT.format(**own, script=script)
            path.write_text(client, encoding="utf-8")
            path.chmod(0o755)
        (folder / UNFORKED).symlink_to(real.parent / UNFORKED)
        # A copy of the environment, without what one test sets: requests bring their own.
        self._server = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n", "the server of forks did not start"

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()
        self._place.cleanup()


def serve(address: str) -> None:
    """Fork for every connection; a fork waits for its script's end and answers with the status."""
    import sacrebleu  # noqa: F401  # for the forks, as the other imports
    import sacremoses  # noqa: F401  # as above
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import fairseq_depthwise  # noqa: F401  # as above

    # The first configuration that hydra makes in a process takes it a second longer than the next.
    convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), ["nowhere", "--arch", "mute_transformer"])
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks here
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 32)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        connection.close()
        _become(json.loads(data), files)
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> None:
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
    end_as({"-c": _code, "-m": _module}.get(first, lambda given: run_script(first, given)), rest)


def _code(arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments[1:]]
    exec(arguments[0], types.ModuleType("__main__").__dict__)


def _module(arguments: list[str]) -> None:
    sys.argv = arguments
    sys.path[0] = os.getcwd()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(sys.argv[1])
