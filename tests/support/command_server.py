"""Runs console scripts in forks of an interpreter that has imported fairseq already.

Each command of the tests would otherwise import PyTorch and fairseq anew, which takes longer than what most of them do.
A fork runs the script itself, with arguments, environment, standard streams, folder and exit status of its own.
Commands for which a test sets variables, which may be read while Python or fairseq start, are started as usual, and so
are those of the tests that are about starting.

As a program it reads requests, a JSON object in each line, and answers each with the status. A request has the path of
the ``program``, its ``arguments``, a ``folder``, the paths of its three ``streams`` and the ``seconds`` it may take.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn


class CommandServer:
    """A server that is started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, program: Path, arguments: Sequence[str], *, stdin: str, folder: Path, seconds: int
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` with text captured.

        Raises:
            TimeoutExpired: the command took longer than so many seconds, and was ended.
        """
        with tempfile.TemporaryDirectory() as place:
            streams = [os.path.join(place, name) for name in ("stdin", "stdout", "stderr")]
            Path(streams[0]).write_text(stdin, encoding="utf-8")
            request = {
                "program": str(program), "arguments": list(arguments), "environment": dict(os.environ),
                "folder": str(folder), "streams": streams, "seconds": seconds,
            }  # fmt: skip
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            status = int(process.stdout.readline())
            stdout, stderr = (Path(path).read_text(encoding="utf-8") for path in streams[1:])
        command = [str(program), *arguments]
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(command, seconds, stdout, stderr)
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    def stop(self) -> None:
        """End the server; it ends by itself when its input does."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._process


def serve() -> None:
    """Fork for every request on stdin, and print the status."""
    import fairseq  # noqa: F401  # what takes long, PyTorch among it

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, Any]) -> None:
    """Be the process of a console script, to its end."""
    signal.alarm(request["seconds"])
    for number, path in enumerate(request["streams"]):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    end_as(lambda arguments: run_script(request["program"], arguments), request["arguments"])


def run_script(program: str, arguments: list[str]) -> None:
    """Run a script as the interpreter does that is started with it."""
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(program)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = program
    exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)


def end_as(run: Callable[[list[str]], None], arguments: list[str]) -> NoReturn:
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
    serve()
