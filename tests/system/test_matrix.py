"""The pure parts of ``tools/matrix.py``: rows, interpreters, tables. Nothing is installed here."""

import contextlib
import os
import signal
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


def rows(*arguments: str) -> list[Row]:
    return matrix.rows_from(matrix.build_parser().parse_args(arguments))


class TestRows:
    def test_the_default_is_one_row_for_each_python(self) -> None:
        assert rows() == [Row("3.10"), Row("3.11"), Row("3.12"), Row("3.13")]

    def test_lists_give_every_combination(self) -> None:
        assert rows("--python", "3.11,3.13", "--torch", "2.5.1,newest", "--pip", "newest") == [
            Row("3.11", torch="2.5.1", pip="newest"),
            Row("3.11", pip="newest"),
            Row("3.13", torch="2.5.1", pip="newest"),
            Row("3.13", pip="newest"),
        ]

    def test_a_row_is_written_out(self) -> None:
        text = "3.10:torch=2.4.1,numpy=1.26.4,pip=23.0.1"
        assert rows("--row", text, "--row", "3.13") == [Row("3.10", "2.4.1", "1.26.4", "23.0.1"), Row("3.13")]

    def test_a_local_version_is_a_version(self) -> None:
        assert matrix.parse_row("3.11:torch=2.13.0+cpu").torch == "2.13.0+cpu"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--python", "3.9"], ["--python", "'3.9'", "3.10, 3.11, 3.12, 3.13"]),
            (["--python", ""], ["--python", "''"]),
            (["--torch", "2.4.1,"], ["--torch", "''", "2.4.1"]),
            (["--numpy", ">=2"], ["--numpy", "'>=2'"]),
            (["--row", "2.7:torch=2.4"], ["--row", "'2.7'"]),
            (["--row", "3.10:tensor=1"], ["--row", "'tensor=1'", "torch, numpy, pip"]),
            (["--row", "3.10:torch=2.4,torch=2.5"], ["--row", "'torch=2.5'", "once"]),
            (["--row", "3.10:torch"], ["--row", "torch", "''"]),
            (["--row", "3.10", "--pip", "24.0"], ["--pip", "'24.0'", "--row"]),
            (["--output", "no/such/folder/matrix.md"], ["--output", "no/such/folder"]),
        ],
    )
    def test_a_wrong_option_is_named_in_one_sentence(
        self, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert matrix.main(arguments) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert all(word in said for word in words)


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
        assert matrix.main(["--python", "3.10", "--output", str(tmp_path / "matrix.md")]) == 1, "nothing was tried"
        assert "not found" in capsys.readouterr().out
        assert [file.name for file in tmp_path.iterdir()] == ["matrix.md"]
        assert "not found" in (tmp_path / "matrix.md").read_text(encoding="utf-8")


class TestTable:
    def test_columns_are_aligned(self) -> None:
        assert matrix.as_table(["a", "long"], [["row", "x"]]) == "| a   | long |\n|-----|------|\n| row | x    |"

    def test_every_error_has_its_line(self) -> None:
        good = Result(Row("3.11"), {step.name: "ok" for step in matrix_steps.STEPS}, seconds=61.4)
        good.versions = {"python": "3.11.7", "pip": "23.2.1", "torch": "2.13.0"}
        bad = Result(Row("3.13", torch="2.4.1"), {"install": "failed"}, {"install": "no `torch`"})
        text = matrix.render([good, bad])
        assert "61 s" in text
        assert "| 3.11.7 | 23.2.1 | 2.13.0 | -" in text
        assert "torch 2.4.1" in text
        assert "not run" in text
        assert "- row 2, install: `no 'torch'`" in text
        assert bad.failed
        assert not good.failed

    def test_the_page_names_no_place(self) -> None:
        page = matrix.document([], ["--output", "/home/somebody/docs/matrix.md"])
        assert "python tools/matrix.py --output matrix.md" in page
        assert "somebody" not in page

    def test_a_page_is_replaced_whole(self, tmp_path: Path) -> None:
        page = tmp_path / "matrix.md"
        page.write_text("old", encoding="utf-8")
        matrix.write_whole(page, "new")
        assert page.read_text(encoding="utf-8") == "new"
        assert list(tmp_path.iterdir()) == [page]


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

    def test_a_command_gets_stdin_and_its_output_comes_back(self, place: Workplace) -> None:
        assert place.run(sys.executable, "-c", "print(input() * 2)", stdin="ab\n") == "abab\n"

    def test_a_failed_command_is_one_line(self, place: Workplace) -> None:
        with pytest.raises(StepError, match=r"^ValueError: 7$"):
            place.run(sys.executable, "-c", "raise ValueError(7)")

    def test_a_missing_command_is_said(self, place: Workplace) -> None:
        with pytest.raises(StepError, match="there is no command no-such-command"):
            place.run("no-such-command")

    def test_an_endless_command_is_ended_with_its_children(
        self, place: Workplace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(matrix_steps, "SECONDS_BETWEEN_SIGNS", 0.2)
        with pytest.raises(StepError, match="sh had not ended after 0 s"):
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

    def test_the_corpus_is_a_copy_task(self, tmp_path: Path) -> None:
        matrix_steps.write_corpus(tmp_path / "corpus")
        source = (tmp_path / "corpus/train.src").read_text(encoding="utf-8")
        assert source == (tmp_path / "corpus/train.tgt").read_text(encoding="utf-8")
        assert source.count("\n") == matrix_steps.TRAINING_PAIRS


def test_the_copy_has_the_project_and_no_ignored_files(tmp_path: Path) -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("not a git checkout")
    matrix.copy_project(tmp_path)
    assert (tmp_path / "setup.py").is_file()
    assert (tmp_path / "fairseq_compat.pth").is_file()
    assert not (tmp_path / ".git").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """A real process, stopped in the middle of a step as Ctrl-C and as `kill` do it."""
    write_program(tmp_path / "bin/python3.12", 'case "$1" in -c) echo 3.12;; *) exec sleep 60;; esac')
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, str(PROJECT / "tools/matrix.py"), "--python", "3.12"]
    for interrupt, status in (("INT", 130), ("TERM", 143)):
        process = subprocess.Popen(
            command,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            # The tests may themselves run in the background of a shell, which makes their children ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stderr is not None
        for line in process.stderr:
            if "install ..." in line:
                break
        time.sleep(0.3)
        subprocess.run(["kill", f"-{interrupt}", str(process.pid)], check=True)
        process.communicate(timeout=30)
        assert process.returncode == status
        assert list((tmp_path / "tmp").iterdir()) == []
