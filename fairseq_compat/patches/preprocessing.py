"""Patches of ``fairseq-preprocess``: its files appear together when all are complete, and no option is ignored.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import os
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.patching import Overlay, patch, replaces
from fairseq_compat.ranges import require_ranges
from fairseq_compat.text import open_text


class _Preprocessing:
    """The files that a running ``fairseq-preprocess`` has written, but not yet renamed.

    Attributes:
        process: ID of the command's main process; 0 if none runs. Its ``--workers`` rename their files at once.
        files: path -> open :class:`WholeFile` stack; closing one renames its file.
    """

    def __init__(self) -> None:
        self.process = 0
        self.files: dict[str, ExitStack] = {}

    def __enter__(self) -> None:
        self.process, self.files = os.getpid(), {}

    def discard(self, path: str) -> None:
        """Remove what was written for ``path``, which is written once more if source and target are one language."""
        if self.process == os.getpid() and path in self.files:
            error = FileExistsError(path)
            with suppress(FileExistsError):
                self.files.pop(path).__exit__(type(error), error, None)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.process = 0
        for file in self.files.values():
            if kind is None:
                file.close()  # renames it
            else:
                file.__exit__(kind, error, traceback)


_preprocessing = _Preprocessing()


class WholeFile:
    """A file that has a temporary name until it is closed, and is removed if anything fails.

    Within ``fairseq-preprocess`` it is renamed when the command is done.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        _preprocessing.discard(path)
        self._stack = ExitStack()
        self._file = self._stack.enter_context(atomic_write(path))

    def write(self, data: Any) -> Any:
        return self._attempt(self._file.write, data.encode("utf-8") if isinstance(data, str) else data)

    def close(self) -> None:
        if self._file.closed:
            return
        self._attempt(self._file.flush)  # a full disk is noticed before any file is renamed
        # --workers are other processes, whose files the main process reads before the end.
        if _preprocessing.process == os.getpid():
            _preprocessing.files[self._path] = self._stack
        else:
            self._stack.close()

    def _attempt(self, action: Callable[..., Any], *args: Any) -> Any:
        """Call a function that writes; if it fails, remove the file."""
        try:
            return action(*args)
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._stack.__exit__(kind, error, traceback)


def open_whole(path: str, mode: str = "r", **options: Any) -> Any:
    """Open a file as :func:`fairseq_compat.text.open_text` does; a new one is a :class:`WholeFile`."""
    return WholeFile(path) if mode in ("w", "wb") else open_text(path, mode, **options)


@patch("fairseq.data.indexed_dataset")
def write_data_atomically(module: Any) -> None:
    """A kill or a full disk leaves half of a data file in place of the old one, and links are written through.

    Here a data file gets its name when it is complete, and replaces a link.
    """
    module.open = open_whole


@patch("fairseq.data.dictionary", function="Dictionary._save")
def write_dictionaries_atomically(original: Any, self: Any, f: Any, entries: Any) -> None:
    """A dictionary is emptied before it is written: on a full disk it is lost, and a link's target is overwritten.

    Here it gets its name when it is complete, and replaces a link. ``fairseq-preprocess`` refuses one without any word.
    """
    if not isinstance(f, str):
        original(self, f, entries)
        return
    # Words that only fill a dictionary up to a multiple (--padding-factor) are in no text.
    entries = list(entries)  # fairseq's are read once only
    has_words = any(not symbol.startswith("madeupword") for symbol, _ in entries)
    if _preprocessing.process == os.getpid() and not has_words:
        raise UserError(
            f"{f} would have no word, and all words would be unknown; give a --srcdict, --tgtdict or --trainpref with "
            "words, a lower --thresholdsrc or --thresholdtgt, or --nwordssrc or --nwordstgt above 4, as the symbols "
            "<s>, <pad>, </s> and <unk> count, too"
        )
    os.makedirs(os.path.dirname(f) or ".", exist_ok=True)
    with WholeFile(f) as file:
        original(self, file, entries)


@patch("fairseq_cli.preprocess")
def write_folder_atomically(module: Any) -> None:
    """A ``fairseq-preprocess`` that is killed leaves new sources beside old targets.

    Here all of its files are renamed when the last one is complete; a link is replaced, not written through.
    """

    def copyfile(source: str, target: str) -> None:
        with open(source, "rb") as text, open_whole(target, "wb") as copy:
            shutil.copyfileobj(text, copy)

    module.open = open_whole
    module.shutil = Overlay(module.shutil, copyfile=copyfile)

    @replaces(module, "main")
    def main(original: Any, args: Any) -> None:
        log = os.path.join(args.destdir, "preprocess.log")
        if os.path.islink(log):
            os.remove(log)
        try:
            with _preprocessing:
                original(args)
        except FileExistsError as error:
            remedy = "give another --destdir, or the dictionaries to use with --srcdict and --tgtdict"
            raise UserError(f"{error} already exists; {remedy}") from error


@patch("fairseq_cli.preprocess", before="main")
def check_preprocessing_options(args: Any) -> None:
    """Options of ``fairseq-preprocess`` do nothing with others, and a missing language ends in a missing file.

    For example, ``--thresholdsrc`` does nothing with ``--srcdict``, nor ``--thresholdtgt`` with
    ``--joined-dictionary``, nor ``--align-suffix`` without a file. Here they are refused, as are numbers out of range.
    """
    require_ranges(vars(args))
    if args.dataset_impl == "fasta":
        raise UserError("--dataset-impl fasta is not written by fairseq-preprocess; give mmap, lazy, cached or raw")
    if not args.only_source and not (args.source_lang and args.target_lang):
        raise UserError("--source-lang or --target-lang is missing; give both, or --only-source for a single language")
    if args.only_source and args.tgtdict and not args.joined_dictionary:
        raise UserError(f"--tgtdict {args.tgtdict} has no effect with --only-source; give --srcdict instead")
    for option, path in (("--srcdict", args.srcdict), ("--tgtdict", args.tgtdict)):
        _require_no_mark(option, path)
    _require_used_limits(args)
    if args.align_suffix:
        prefixes = ",".join(filter(None, (args.trainpref, args.validpref, args.testpref)))
        if not any(os.path.isfile(f"{prefix}.{args.align_suffix}") for prefix in prefixes.split(",")):
            raise UserError(f"--align-suffix {args.align_suffix}: there is no {prefixes}.{args.align_suffix}")


def _require_no_mark(option: str, path: str | None) -> None:
    """Raise UserError if a dictionary begins with a byte order mark, which would be a part of its first word."""
    if not path or not os.path.isfile(path):  # fairseq's error names a missing file
        return
    with open(path, "rb") as file:
        if file.read(len(BOM_UTF8)) == BOM_UTF8:
            raise UserError(
                f"{option} {path} begins with a byte order mark in line 1, which would be a part of its first word; "
                "save it as UTF-8 without the mark"
            )


def _require_used_limits(args: Any) -> None:
    """Raise UserError if a limit of a dictionary is given that is not built."""
    for name, default in (("threshold", 0), ("nwords", -1)):
        source, target = (getattr(args, f"{name}{side}") for side in ("src", "tgt"))
        for side, limit in (("src", source), ("tgt", target)):
            sides = ("src", "tgt") if args.joined_dictionary else (side,)
            for option in sides:
                if limit != default and getattr(args, f"{option}dict"):
                    raise UserError(f"--{name}{side} {limit} has no effect with --{option}dict; leave it out")
        if args.joined_dictionary and target not in (default, source):
            raise UserError(f"--{name}tgt {target} has no effect with --joined-dictionary; give --{name}src instead")
