"""Runs commands in a work folder, as real text is prepared and models are trained: repeats none that is finished."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from program import tell
from turns import Remote, WorkFailedError, take_turns

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import begin_folder

SPLITS = ("train", "valid", "test")


class Workplace:
    """A folder to work in that remembers which commands are finished.

    Args:
        folder: it is made if it is missing.
        corpus: the folder of the text; its parent is ``$CORPORA`` in commands.
        threads: threads of PyTorch.
    """

    def __init__(self, folder: Path, corpus: Path, threads: int) -> None:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        begin_folder("--work", str(folder), "folder of measurements")
        self.folder = folder
        self._finished = folder / "finished.txt"
        programs = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
            "CORPORA": str(corpus.resolve().parent),
            "OMP_NUM_THREADS": str(threads),
        }

    def only_for(self, name: str, settings: Mapping[str, object]) -> None:
        """Note the settings, or compare them with those that the folder was used for.

        Raises:
            UserError: the folder holds results that were made with others.
        """
        path = self.folder / f"{name}.settings.json"
        if not path.exists():
            with atomic_write(path) as file:
                file.write(json.dumps(settings, indent=1).encode())
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, value in json.loads(json.dumps(settings)).items():  # where keys are texts
            if before.get(key) != value:
                raise UserError(
                    f"--work {self.folder} holds results made with {key} {before.get(key)}, not {value}; "
                    "give another folder"
                )

    def unpack(self, corpus: Path, name: str) -> str:
        """Return the command that copies a file of the corpus here, unpacked."""
        packed = (corpus / f"{name}.gz").exists()
        path = f'"$CORPORA"/{shlex.quote(corpus.resolve().name)}/{name}'
        return f"gzip -dc {path}.gz > {name}" if packed else f"cat {path} > {name}"

    def run(self, command: str) -> None:
        """Print a command and run it, unless it is finished; see :meth:`train`."""
        (self.folder / "errors.log").unlink(missing_ok=True)
        self.train(command, "errors")

    def train(self, command: str, name: str) -> Path:
        """Run a command, or what is left of a training, unless it is finished; a later start adds to its log.

        Returns:
            NAME.log, with what it printed.

        Raises:
            UserError: it failed.
        """
        log = self.folder / f"{name}.log"
        if self._finished.exists() and command in self._finished.read_text(encoding="utf-8").split("\n"):
            return log
        tell(f"\n$ {command}")
        started = time.monotonic()
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["sh", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                status = process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGTERM)  # what the command started is ended, too
                process.wait()
                raise
        if status != 0:
            raise _failure(command, f"status {status}", log)
        with self._finished.open("a", encoding="utf-8") as finished:
            finished.write(command + "\n")
        tell(f"  {time.monotonic() - started:.1f} s")
        return log

    def train_in_turns(self, title: str, commands: Mapping[str, str], updates: int) -> dict[str, list[float]]:
        """Run trainings of equally many updates in turns, on one core; return the seconds of each update.

        Args:
            title: of the numbers' file and of progress.
            commands: name -> a command that begins with ``fairseq-depthwise``; the names are those of the logs.
            updates: of each training.

        Raises:
            UserError: a training failed.
        """
        path = self.folder / f"{title}.json"
        if path.exists():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        tell(f"\n{title}, in turns:")
        trainings: dict[str, StepwiseTraining] = {}

        def failed(name: str, reason: str) -> None:
            raise _failure(commands[name], reason, self.folder / f"{name}.log")

        try:
            for name, command in commands.items():
                tell(f"$ {command}")
                trainings[name] = StepwiseTraining(shlex.split(command)[1:], self.folder / f"{name}.log")
            for name, training in trainings.items():
                try:
                    training.answer()  # it is ready for the first update
                except WorkFailedError as error:
                    failed(name, str(error))
            works = {name: training.update for name, training in trainings.items()}
            seconds = take_turns(works, rounds=updates, title=title, failed=failed)
        finally:
            for training in trainings.values():
                training.close()
        with atomic_write(path) as file:
            file.write(json.dumps(seconds).encode())
        return seconds


def _failure(command: str, how: str, log: Path) -> UserError:
    """Return the error of a command that failed, with the last lines of its output below."""
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:] if log.exists() else []
    return UserError("\n".join([f"a command failed, {how}: {command}", *last]))


# --- trainings that make an update whenever they are asked to ---------------------------------------------------------


class StepwiseTraining(Remote):
    """The runner's end of a training that makes one update at a time.

    What an update takes is everything that fairseq does from one to the next: growth, fetching and logging, too.

    Args:
        arguments: of ``fairseq-depthwise``.
        log: where the process writes what it prints; it works in the log's folder.
    """

    start_method = "forkserver"  # fairseq is imported once, by the server

    def __init__(self, arguments: list[str], log: Path) -> None:
        multiprocessing.set_forkserver_preload(["fairseq_depthwise.cli", "fairseq.trainer"])
        super().__init__(serve, arguments, log.absolute())

    def update(self, _: int = 0) -> float:
        """Have an update made and return its seconds."""
        begin = time.perf_counter()
        self.ask("update")
        return time.perf_counter() - begin


def serve(connection: Connection, arguments: list[str], log: Path) -> None:
    """Run a command whose trainer waits before each update until it is asked, and answers when it is ready for it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.chdir(log.parent)
    if hasattr(os, "sched_setaffinity"):
        # The same core for all, since something else may be running on one of them.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from fairseq.trainer import Trainer

    from fairseq_depthwise.cli import main

    train_step = Trainer.train_step

    def in_turn(trainer: Trainer, *given: Any, **named: Any) -> Any:
        connection.send("ready")
        connection.recv()
        return train_step(trainer, *given, **named)

    Trainer.train_step = in_turn
    status = main(arguments)
    if status != 0:
        raise SystemExit(f"it ended with {status}")
    connection.send("finished")


# --- the text -----------------------------------------------------------------------------------------------------


def add_text_options(parser: argparse.ArgumentParser, work: str) -> None:
    """Add the options of the text and of the folder to work in."""
    add = parser.add_argument
    add("--corpus", type=Path, required=True, help="folder with train, valid and test files of two languages")
    add("--source", metavar="XX", help="source language; en if the corpus has it, else the first")
    add("--work", type=Path, default=Path(work), help="folder to work in (default: %(default)s)")


def find_languages(corpus: Path, wanted_source: str | None) -> tuple[str, str]:
    """Return the two languages of a corpus folder, source first.

    Raises:
        UserError: the folder, a language or one of the six files is missing.
    """
    if not corpus.is_dir():
        raise UserError(f"--corpus {corpus} is no folder; give one with train, valid and test files")
    names = {path.name.removesuffix(".gz") for path in corpus.iterdir()}
    languages = sorted(name.removeprefix("train.") for name in names if name.startswith("train."))
    if len(languages) != 2:
        raise UserError(f"--corpus {corpus} has {len(languages)} files named train.LANGUAGE; it needs two")
    wanted = [f"{split}.{language}" for split in SPLITS for language in languages]
    if missing := [name for name in wanted if name not in names]:
        raise UserError(f"--corpus {corpus} lacks {', '.join(missing)}")
    source = wanted_source or ("en" if "en" in languages else languages[0])
    if source not in languages:
        raise UserError(f"--source {source} is none of the corpus's languages, {languages[0]} and {languages[1]}")
    return source, languages[1 - languages.index(source)]


def prepare(place: Workplace, corpus: Path, languages: tuple[str, str], merges: int) -> dict[str, Any]:
    """Tokenize, split into subwords and binarize; return the commands as ``prepared`` and the sizes of the ``text``."""
    place.only_for("data", {"corpus": corpus.resolve().name, "languages": " -> ".join(languages), "merges": merges})
    source, target = languages
    files = [(split, language) for split in SPLITS for language in languages]
    commands = [
        *(place.unpack(corpus, f"{split}.{language}") for split, language in files),
        *(f"sacremoses -q -l {lang} tokenize -x < {split}.{lang} > {split}.tok.{lang}" for split, lang in files),
        f"subword-nmt learn-joint-bpe-and-vocab --input train.tok.{source} train.tok.{target} -s {merges} "
        f"-o bpe.codes --write-vocabulary bpe.vocabulary.{source} bpe.vocabulary.{target}",
        *(f"subword-nmt apply-bpe -c bpe.codes < {split}.tok.{lang} > {split}.bpe.{lang}" for split, lang in files),
        f"fairseq-preprocess --source-lang {source} --target-lang {target} --joined-dictionary "
        "--trainpref train.bpe --validpref valid.bpe --testpref test.bpe --destdir data-bin",
    ]
    for command in commands:
        place.run(command)

    def lines(name: str) -> int:
        return (place.folder / name).read_bytes().count(b"\n")

    special = 4  # start, padding, end and unknown are not in the file
    text: dict[str, Any] = {split: lines(f"{split}.{source}") for split in SPLITS}
    text |= {"corpus": corpus.resolve().name, "languages": " -> ".join(languages), "merges": merges}
    return {"prepared": commands, "text": {**text, "dictionary": lines(f"data-bin/dict.{source}.txt") + special}}
