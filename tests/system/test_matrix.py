"""The pure parts of ``tools/matrix.py``: rows, interpreters, tables. Nothing is installed here."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tools"))

import matrix  # noqa: E402  # found by the lines above
import matrix_steps  # noqa: E402  # found by the lines above
from matrix_steps import Result, Row, Step, StepError, Workplace  # noqa: E402  # found by the lines above


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


class TestRows:
    @pytest.mark.parametrize(
        ("text", "row"),
        [
            ("3.10:torch=2.4.1+cpu,numpy=1.26.4,pip=23.0.1", Row("3.10", "2.4.1+cpu", "1.26.4", "23.0.1")),
            ("3.11:torch=newest,pip=newest", Row("3.11", pip="newest")),
            ("3.13", Row("3.13")),
        ],
    )
    def test_rows(self, text: str, row: Row) -> None:
        assert matrix.parse_row(text) == row

    @pytest.mark.parametrize(
        ("arguments", "value"),
        [
            (["--row", ""], "''"),
            (["--row", "2.7:torch=2.4"], "'2.7'"),
            (["--row", "3.10:tensor=1"], "'tensor=1'"),
            (["--row", "3.10:torch=2.4,torch=2.5"], "'torch=2.5'"),
            (["--row", "3.10:torch"], "''"),
            (["--row", "3.10:numpy=>=2"], "'>=2'"),
            (["--output", ""], "''"),
            (["--output", "no/such/matrix.md"], "no/such/matrix.md"),
            (["--output", __file__], __file__),
        ],
    )
    def test_a_wrong_option_is_named(
        self, arguments: list[str], value: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as error:
            matrix.main(arguments)
        assert error.value.code == 2
        message = capsys.readouterr().err
        assert arguments[0] in message
        assert value in message


class TestInterpreters:
    GOOD = "echo 3.12"

    def test_the_first_on_the_path_that_works_is_taken(self, tmp_path: Path) -> None:
        write_program(tmp_path / "shims/python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
        write_program(tmp_path / "old/python3.12", "echo 3.8")
        right = write_program(tmp_path / "bin/python3.12", self.GOOD)
        write_program(tmp_path / "later/python3.12", self.GOOD)
        path = os.pathsep.join(str(tmp_path / name) for name in ("nowhere", "shims", "old", "bin", "later"))
        assert matrix.find_interpreter("3.12", path, tmp_path / "pyenv") == str(right)

    def test_pyenv_comes_after_the_path_newest_first(self, tmp_path: Path) -> None:
        for version in ("3.12.9", "3.12.10", "3.1.2", "3.11.7"):
            write_program(tmp_path / f"versions/{version}/bin/python3.12", self.GOOD)
        found = list(matrix.candidates("3.12", str(tmp_path), tmp_path))
        assert [Path(file).parts[-3] for file in found] == ["3.12.10", "3.12.9"]

    def test_a_file_that_cannot_be_executed_is_none(self, tmp_path: Path) -> None:
        write_program(tmp_path / "python3.12", self.GOOD).chmod(0o644)
        (tmp_path / "versions/3.12.1/bin").mkdir(parents=True)
        broken = tmp_path / "versions/3.12.1/bin/python3.12"
        broken.write_bytes(b"\x7fELF broken")
        broken.chmod(0o755)
        assert matrix.find_interpreter("3.12", str(tmp_path), tmp_path) is None

    def test_a_missing_python_is_a_row_not_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(matrix, "find_interpreter", lambda *_: None)
        monkeypatch.setattr(matrix, "copy_project", lambda target: target.mkdir())
        monkeypatch.setattr(matrix.tempfile, "tempdir", str(tmp_path))
        page = tmp_path / "matrix.md"
        page.write_text(f"before\n{matrix.BEGIN}old\n{matrix.END}after\n", encoding="utf-8")
        assert matrix.main(["--row", "3.10", "--output", str(page)]) == 1, "nothing was tried"
        assert "not found" in capsys.readouterr().out
        assert [file.name for file in tmp_path.iterdir()] == ["matrix.md"]
        text = page.read_text(encoding="utf-8")
        assert "not found" in text
        assert text.startswith(f"before\n{matrix.BEGIN}\n- date")
        assert text.endswith(f"{matrix.END}after\n")


def test_table(tmp_path: Path) -> None:
    """Every error has its line, and the page names no place of the machine."""
    good = Result(Row("3.11"), {step.name: "ok" for step in matrix_steps.STEPS}, seconds=61.4)
    good.versions = {"python": "3.11.7", "pip": "23.2.1", "torch": "2.13.0"}
    bad = Result(Row("3.13", torch="2.4.1"), {"install": "failed"}, {"install": "no `torch`"})
    text = matrix.render([good, bad])
    for part in ("61 s", "| 3.11.7 | 23.2.1 | 2.13.0 |", "torch 2.4.1", "not run", "row 2, install: `no 'torch'`"):
        assert part in text
    assert [good.failed, bad.failed] == [False, True]
    page = tmp_path / "matrix.md"
    page.write_text(f"{matrix.BEGIN}{matrix.END}", encoding="utf-8")
    matrix.write_page(page, [], ["--output", "/home/somebody/docs/matrix.md"])
    assert list(tmp_path.iterdir()) == [page]
    assert "tools/matrix.py --output matrix.md" in page.read_text(encoding="utf-8")
    assert "somebody" not in page.read_text(encoding="utf-8")


class TestErrorLine:
    @pytest.mark.parametrize(
        ("output", "line"),
        [
            ("Traceback:\n  File x\nValueError: first\n\nTraceback:\nKeyError: 'second'\nmore", "KeyError: 'second'"),
            ("torch.cuda.OutOfMemoryError: none left", "torch.cuda.OutOfMemoryError: none left"),
            ("INFO | fine\nfairseq-train: error: no such folder\n", "fairseq-train: error: no such folder"),
            ("error: subprocess-exited-with-error\n  error: command 'g++' failed\n", "error: command 'g++' failed"),
            ("Killed\n\n", "Killed"),
            ("", "it printed nothing"),
            ("OSError: no '/home/a_b/c/d.txt' in /tmp/x-1/venv/lib", "OSError: no 'd.txt' in lib"),
            ("ERROR: HTTPSConnectionPool(host='a.b', port=1): https://a.b/c", "ERROR: HTTPSConnectionPool(host=(host)"),
        ],
    )
    def test_it_is_found_and_says_no_place(self, output: str, line: str) -> None:
        assert matrix_steps.error_line(output).startswith(line)

    @pytest.mark.parametrize("text", ["a/b and 3/4", "torch>=2.4,<2.14", "it's 1/2"])
    def test_what_is_no_place_stays(self, text: str) -> None:
        assert matrix_steps.without_places(text) == text


class TestSteps:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Workplace:
        (tmp_path / "project").mkdir()
        (tmp_path / "row").mkdir()
        return Workplace(tmp_path / "row", sys.executable, tmp_path / "project", Row("3.11"), lambda text: None)

    def test_what_needs_a_failed_step_is_not_run(self, place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(place: Workplace) -> None:
            raise StepError("broken")

        steps = (Step("one", lambda _: None), Step("two", fail, ("one",)), Step("three", fail, ("two",)))
        monkeypatch.setattr(matrix_steps, "STEPS", steps)
        result = matrix_steps.run_row(place, quick=False)
        assert result.cells == {"one": "ok", "two": "failed", "three": "not run"}
        assert result.errors == {"two": "broken"}

    def test_every_step_comes_after_those_it_needs(self) -> None:
        names = [step.name for step in matrix_steps.STEPS]
        for number, step in enumerate(matrix_steps.STEPS):
            assert set(step.after) <= set(names[:number])
            assert not step.quick or all(matrix_steps.STEPS[names.index(name)].quick for name in step.after)

    def test_commands(self, place: Workplace) -> None:
        assert place.run(sys.executable, "-c", "print(input() * 2)", stdin="ab\n") == "abab\n"
        with pytest.raises(StepError, match=r"^ValueError: 7$"):
            place.run(sys.executable, "-c", "raise ValueError(7)")
        with pytest.raises(StepError, match="no-such-command"):
            place.run("no-such-command")

    def test_an_endless_command_is_ended_with_its_children(
        self, place: Workplace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(matrix_steps, "SECONDS_BETWEEN_SIGNS", 0.2)
        with pytest.raises(StepError, match="sh had not ended"):
            place.run("/bin/sh", "-c", "sleep 60 & echo $! > child; wait", seconds=0.1)
        child = int((place.folder / "child").read_text())
        for _ in range(50):
            state = Path(f"/proc/{child}/stat")
            with contextlib.suppress(OSError):
                if state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
                    time.sleep(0.1)
                    continue
            break
        else:
            pytest.fail("the child is still running")


def test_the_copy_has_the_project_and_no_ignored_files(tmp_path: Path) -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("not a git checkout")
    matrix.copy_project(tmp_path)
    assert (tmp_path / "fairseq_compat.pth").is_file()
    assert not (tmp_path / ".git").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """A real process, stopped in the middle of a step as Ctrl-C and as `kill` do it."""
    write_program(tmp_path / "bin/python3.12", 'case "$1" in -c) echo 3.12;; *) exec sleep 60;; esac')
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, str(PROJECT / "tools/matrix.py"), "--row", "3.12"]
    for interrupt, status in (("INT", 130), ("TERM", 143)):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if "install ..." in line:
                break
        time.sleep(0.3)
        subprocess.run(["kill", f"-{interrupt}", str(process.pid)], check=True)
        process.communicate(timeout=30)
        assert process.returncode == status
        assert list((tmp_path / "tmp").iterdir()) == []
