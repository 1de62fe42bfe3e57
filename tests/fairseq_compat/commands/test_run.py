"""What a command does with closed streams, full disks, readers that leave, Ctrl-C: no traceback, the right status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = r"""
import logging, sys
from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option
open_closed_streams()
logging.basicConfig(stream=sys.stdout)
def results():
    sys.stderr.write(f"read {len(sys.stdin.read())}\\n")
    for number in range(3000):
        print("a line of results", number)
def log():
    for number in range(3000):
        logging.warning("a line of the log")
def elsewhere():
    print("a line of results")
    with open("/dev/full", "w") as file:
        file.write("a line")
def defect():
    return 1 / 0
def mistake():
    from fairseq_compat import UserError
    raise UserError("--beam 0 is wrong\x1b[2J\nand more")
def of_a_mistake():
    try:
        mistake()
    except ValueError:
        raise RuntimeError("cannot be loaded")
def missing():
    open("nowhere.txt")
def child(number):
    (mistake if number else defect)()
def processes():
    from torch.multiprocessing import spawn
    spawn(child, nprocs=1)
def wait():
    print("ready", flush=True)
    import time; time.sleep(60)
if __name__ == "__main__":
    sys.argv = without_traceback_option(sys.argv)
    sys.exit(run_command("name part", globals()[sys.argv[1]]))
"""


def shell(tmp_path: Path, line: str, **environment: str) -> tuple[int, str]:
    """Run a line of the shell in which PROGRAM stands for the program; return its status and what is on stderr."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = f"{sys.executable} {tmp_path}/program.py"
    script = f"{line.replace('PROGRAM', command)}"
    result = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    return result.returncode, result.stderr


FULL = "standard output or a file cannot be written: No space left on device"


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("PROGRAM results <&- >/dev/null", 0, "read 0"),
        ("PROGRAM results >&-", 0, "read 0"),
        ("PROGRAM results >/dev/full", 1, FULL),
        ("PROGRAM results <&- 2>&- >/dev/null", 0, ""),
        ("set -o pipefail; PROGRAM results | head -1 >/dev/null", 1, "read 0"),
        ("PROGRAM log >/dev/full", 0, ""),
        ("PROGRAM elsewhere | cat", 0, "name: error: a file cannot be written: No space left on device"),
    ],
)
def test_streams(line: str, status: int, said: str, tmp_path: Path) -> None:
    found, stderr = shell(tmp_path, line)
    assert (found, stderr.count("\n") <= 2, said in stderr) == (status, True, True), stderr


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("mistake", "name: error: --beam 0 is wrong\\x1b[2J\\nand more"),
        ("of_a_mistake", "name: error: --beam 0 is wrong"),
        ("missing", "name: error: nowhere.txt does not exist"),
    ],
)
def test_mistake_is_one_sentence(kind: str, named: str, tmp_path: Path) -> None:
    status, stderr = shell(tmp_path, f"PROGRAM {kind}", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (status, stderr.count("\n"), stderr[: len(named)]) == (1, 1, named)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("defect", "name part: ZeroDivisionError: division by zero; "),
        ("processes", "name part: ProcessRaisedException: ZeroDivisionError: division by zero; "),
    ],
)
def test_defect_is_one_sentence_and_a_file(kind: str, named: str, tmp_path: Path) -> None:
    status, stderr = shell(tmp_path, f"PROGRAM {kind}", XDG_CACHE_HOME=str(tmp_path / "cache"))
    (kept,) = (tmp_path / "cache").rglob("*.txt")
    assert (status, stderr.count("\n"), stderr[: len(named)]) == (1, 1, named)
    assert stderr.endswith(f"; the traceback is in {kept}\n")
    text = kept.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in text
    assert f"program.py {kind}" in text


@pytest.mark.parametrize("line", ["PROGRAM defect --traceback", "XDG_CACHE_HOME=/dev/null PROGRAM defect"])
def test_traceback_is_printed_if_asked_for_or_nothing_can_be_written(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Traceback"):
        shell(tmp_path, line, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_interrupt(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, tmp_path / "program.py", "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == "interrupted\n"
    assert process.returncode == 130
