"""What is done with one row of the matrix: a fresh environment, a regular installation, and a smoke test on the CPU.

Each step is one cell of the table. The smoke test uses the commands that a user types, in a folder away from the
project, so that nothing is imported from the working tree.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_compat.versions import INSTALL_FAIRSEQ  # the command that the README gives, word for word

OK, FAILED, NOT_RUN, NOT_FOUND = "ok", "failed", "not run", "not found"
DISTRIBUTIONS = ("pip", "torch", "numpy", "hydra-core", "omegaconf")
NEWEST = "newest"

FIRST_UPDATES, ALL_UPDATES = 10, 20
TRAINING_PAIRS, OTHER_PAIRS = 200, 20
PIP_SECONDS, STEP_SECONDS, SECONDS_BETWEEN_SIGNS = 1800, 600, 10

STOCK = (
    *("--arch", "transformer", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--encoder-ffn-embed-dim", "32", "--decoder-ffn-embed-dim", "32", "--encoder-layers", "2"),
    *("--decoder-layers", "2", "--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
)
DEPTHWISE = (
    *("--arch", "depthwise_lstm_transformer", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--depthwise-hidden-dim", "32", "--encoder-layers", "2", "--decoder-layers", "2"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
)


@dataclass(frozen=True)
class Row:
    """One environment: a Python version and what is pinned in it. An empty pin leaves the choice to pip."""

    python: str
    torch: str = ""
    numpy: str = ""
    pip: str = ""

    @property
    def pins(self) -> str:
        pins = {"torch": self.torch, "numpy": self.numpy, "pip": self.pip}
        return ", ".join(f"{name} {version}" for name, version in pins.items() if version) or "none"


@dataclass
class Result:
    """What came out of a row."""

    row: Row
    cells: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return FAILED in self.cells.values()


class StepError(Exception):
    """A step failed; the message is its one line under the table."""


def without_places(text: str) -> str:
    """Return the text without addresses, host names and folders, which say where it was run and nothing else."""
    text = re.sub(r"\b[a-z][a-z0-9+]*://[^\s'\"<>]+", "(address)", text)
    text = re.sub(r"host='[^']*'", "host=(host)", text)
    return re.sub(r"(?<![\w.<)])~?/(?:[^\s/'\":,;()]+/)+", "", text)


def error_line(output: str) -> str:
    """Return the line of a command's output that says what went wrong, as far as that can be told."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|Interrupt)\b", line)]
    # pip reports the failure of a build before and after the lines with its cause.
    errors = [
        line
        for line in lines
        if re.search(r"\berror:", line, re.IGNORECASE) and not re.search("subprocess-exited|Failed to build", line)
    ]
    chosen = exceptions[-1:] or errors[:1] or lines[-1:] or ["it printed nothing"]
    return without_places(chosen[0])[:300]


def write_corpus(folder: Path) -> None:
    """Write a copy task: source and target are the same random words."""
    folder.mkdir()
    chance = random.Random(1)
    for split, pairs in (("train", TRAINING_PAIRS), ("valid", OTHER_PAIRS), ("test", OTHER_PAIRS)):
        lines = [" ".join(f"w{chance.randrange(20)}" for _ in range(chance.randint(2, 6))) for _ in range(pairs)]
        for language in ("src", "tgt"):
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Workplace:
    """The folder of one row, with its environment, its corpus and its checkpoints."""

    def __init__(self, folder: Path, interpreter: str, source: Path, row: Row, say: Callable[[str], None]) -> None:
        self.folder, self.interpreter, self.row, self.say = folder, interpreter, row, say
        self.programs = folder / "venv" / "bin"
        self.source = folder / "source"
        shutil.copytree(source, self.source)
        # pip unpacks gigabytes: into the row's folder, which is deleted with everything else.
        (folder / "tmp").mkdir()
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER", "FAIRSEQ_USER_DIR")
        }
        self.environment.update(
            PATH=f"{self.programs}{os.pathsep}{os.environ.get('PATH', '')}",
            TMPDIR=str(folder / "tmp"),
            PYTHONNOUSERSITE="1",
            CUDA_VISIBLE_DEVICES="",
        )

    def run(self, *command: str, stdin: str = "", where: Path | None = None, seconds: float = STEP_SECONDS) -> str:
        """Run a command to its end and return what it printed.

        Raises:
            StepError: it failed, or took longer than ``seconds``.
        """
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise StepError(f"there is no command {Path(command[0]).name}")
        log, given = self.folder / "log.txt", self.folder / "stdin.txt"
        given.write_text(stdin, encoding="utf-8")
        begin = time.monotonic()
        with given.open(encoding="utf-8") as reading, log.open("w", encoding="utf-8") as writing:
            process = subprocess.Popen(
                [program, *command[1:]],
                cwd=where or self.folder,
                env=self.environment,
                stdin=reading,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its own children, compilers and loaders, can be ended with it
            )
            try:
                while process.poll() is None:
                    try:
                        process.wait(SECONDS_BETWEEN_SIGNS)
                    except subprocess.TimeoutExpired:
                        passed = time.monotonic() - begin
                        if passed > seconds:
                            raise StepError(f"{Path(command[0]).name} had not ended after {seconds:.0f} s") from None
                        self.say(f"{' '.join([Path(command[0]).name, *command[1:4]])}, {passed:.0f} s")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        output = log.read_text(encoding="utf-8", errors="replace")
        if process.returncode:
            raise StepError(error_line(output))
        return output

    def python(self, code: str) -> str:
        return self.run(str(self.programs / "python"), "-c", code)

    def pip(self, *arguments: str, where: Path | None = None) -> str:
        return self.run(str(self.programs / "python"), "-m", "pip", *arguments, where=where, seconds=PIP_SECONDS)

    def site_packages(self) -> Path:
        return Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def versions(self) -> dict[str, str]:
        """Return the exact versions of Python and of :data:`DISTRIBUTIONS`."""
        code = (
            "import json, platform\nfrom importlib import metadata\ninstalled = {'python': platform.python_version()}\n"
            f"for name in {DISTRIBUTIONS!r}:\n"
            "    try:\n        installed[name] = metadata.version(name)\n"
            "    except metadata.PackageNotFoundError:\n        pass\n"
            "print(json.dumps(installed))"
        )
        installed: dict[str, str] = json.loads(self.python(code).splitlines()[-1])
        return installed

    def train(self, name: str, *options: str, updates: int = FIRST_UPDATES) -> str:
        """Run fairseq-train; its checkpoints are in the folder ``name``."""
        output = self.run(
            *("fairseq-train", "data-bin", "--cpu", "--save-dir", name, "--max-update", str(updates)),
            *("--optimizer", "adam", "--lr", "0.005", "--max-tokens", "400", "--share-all-embeddings"),
            *("--no-epoch-checkpoints", "--log-format", "simple", "--log-interval", "5"),
            # BLEU during validation puts NumPy arrays into the checkpoint, which a resumed run has to accept.
            *("--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--eval-bleu-detok", "space", *options),
        )
        if not (self.folder / name / "checkpoint_last.pt").is_file():
            raise StepError("fairseq-train ended well and wrote no checkpoint_last.pt")
        return output

    def translate(self, command: str, name: str, *options: str, stdin: str = "", expected: int = OTHER_PAIRS) -> None:
        """Run fairseq-generate or fairseq-interactive and count the translations."""
        path = str(Path(name) / "checkpoint_last.pt")
        output = self.run(command, "data-bin", "--cpu", "--path", path, "--beam", "2", *options, stdin=stdin)
        translations = len(re.findall(r"^H-\d+\t", output, re.MULTILINE))
        if translations != expected:
            raise StepError(f"{command} ended well and printed {translations} translations of {expected}")

    def user_dir(self) -> tuple[str, str]:
        return "--user-dir", str(self.site_packages() / "fairseq_depthwise")


def install(place: Workplace) -> None:
    place.run(place.interpreter, "-m", "venv", str(place.folder / "venv"))
    if place.row.pip == NEWEST:
        place.pip("install", "--upgrade", "pip")
    elif place.row.pip:
        place.pip("install", f"pip=={place.row.pip}")
    pins = [f"{name}=={pin}" for name, pin in (("torch", place.row.torch), ("numpy", place.row.numpy)) if pin]
    place.pip("install", ".", *pins, where=place.source)


def install_fairseq(place: Workplace) -> None:
    place.pip(*shlex.split(INSTALL_FAIRSEQ)[1:])


def doctor(place: Workplace) -> None:
    place.python("import fairseq, fairseq_depthwise")
    place.run("fairseq-depthwise", "doctor")


def preprocess(place: Workplace) -> None:
    write_corpus(place.folder / "corpus")
    prefixes = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", f"corpus/{split}")]
    languages = ("--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary")
    place.run("fairseq-preprocess", *languages, *prefixes, "--destdir", "data-bin", "--workers", "2")


def resume(place: Workplace) -> None:
    output = place.train("stock", *STOCK, updates=ALL_UPDATES)
    if f"@ {FIRST_UPDATES} updates" not in output:
        raise StepError("the second fairseq-train did not go on from checkpoint_last.pt")


def interactive(place: Workplace) -> None:
    options = (*place.user_dir(), "--source-lang", "src", "--target-lang", "tgt")
    place.translate("fairseq-interactive", "depthwise", *options, stdin="w1 w2 w3\nw4 w5\n", expected=2)


def train_in_bf16(place: Workplace) -> None:
    place.train("stock-bf16", *STOCK, "--bf16", updates=5)
    place.train("depthwise-bf16", *place.user_dir(), *DEPTHWISE, "--bf16", updates=5)


def uninstall(place: Workplace) -> None:
    site_packages = place.site_packages()
    place.pip("uninstall", "-y", "fairseq-depthwise")
    ours = ("fairseq_compat", "fairseq_depthwise", "fairseq-depthwise")
    left = [path.name for folder in (site_packages, place.programs) for path in folder.iterdir()]
    left = sorted(name for name in left if name.startswith(ours))
    if left:
        raise StepError(f"pip uninstall left {', '.join(left)}")
    printed = place.python("pass").strip()
    if printed:
        raise StepError(f"Python says at its start: {error_line(printed)}")


@dataclass(frozen=True)
class Step:
    """A column: what is done, and the columns without which it cannot be done."""

    name: str
    do: Callable[[Workplace], object]
    after: tuple[str, ...] = ()
    quick: bool = False


STEPS = (
    Step("install", install, quick=True),
    Step("fairseq", install_fairseq, ("install",), quick=True),
    Step("doctor", doctor, ("fairseq",), quick=True),
    Step("preprocess", preprocess, ("fairseq",)),
    Step("train", lambda place: place.train("stock", *STOCK), ("preprocess",)),
    Step("resume", resume, ("train",)),
    Step("generate", lambda place: place.translate("fairseq-generate", "stock"), ("train",)),
    Step("train dw", lambda place: place.train("depthwise", *place.user_dir(), *DEPTHWISE), ("preprocess",)),
    Step(
        "generate dw",
        lambda place: place.translate("fairseq-generate", "depthwise", *place.user_dir()),
        ("train dw",),
    ),
    Step("interactive dw", interactive, ("train dw",)),
    Step("bf16", train_in_bf16, ("preprocess",)),
    Step("uninstall", uninstall, ("install",)),
)


def run_row(place: Workplace, quick: bool) -> Result:
    """Do all steps of a row that can be done."""
    result, begin = Result(place.row), time.monotonic()
    for step in STEPS:
        if (quick and not step.quick) or any(result.cells[name] != OK for name in step.after):
            result.cells[step.name] = NOT_RUN
            continue
        place.say(f"{step.name} ...")
        begin_step = time.monotonic()
        try:
            step.do(place)
            result.cells[step.name] = OK
        except (StepError, OSError) as error:
            result.cells[step.name] = FAILED
            result.errors[step.name] = without_places(str(error))
        passed = f"{time.monotonic() - begin_step:.0f} s"
        place.say(f"{step.name} {result.cells[step.name]}, {passed} {result.errors.get(step.name, '')}".rstrip())
        if step.name in ("install", "fairseq") and result.cells["install"] == OK:
            result.versions = place.versions()
    result.seconds = time.monotonic() - begin
    return result
