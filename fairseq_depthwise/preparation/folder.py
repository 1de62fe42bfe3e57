"""The folder that ``prepare`` makes: written aside, resumed where it was interrupted, renamed at the end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fairseq_compat import UserError, files
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import MARKER, begin_folder, folder_path, is_made_as, write_marker
from fairseq_compat.text_record import write_text_record
from fairseq_depthwise.preparation.by_hand import commands_by_hand
from fairseq_depthwise.preparation.settings import (
    SUBWORDS,
    TOKENIZERS,
    Part,
    Settings,
    changed,
    subword_files,
    text_name,
)
from fairseq_depthwise.preparation.steps import Steps

#: In the folder's marker (fairseq_compat/outputs.py).
KIND = "prepared data"

#: What was made of what: settings, digests of the texts, and what each finished step counted.
RECORD = "prepare.json"

Document = dict[str, Any]


def prepare(
    place: str, settings: Settings, parts: Sequence[Part], workers: int, say: Callable[[str], None]
) -> Document:
    """Make the folder ``place`` unless it is there; return its record.

    Raises:
        UserError: there is another folder, or it was made of other texts or with other settings; a text or a setting
            cannot be used; another process makes the same folder.
    """
    place = folder_path("DATA", place)
    document: Document = {"settings": settings.recorded(), "texts": {part.name: part.digests() for part in parts}}
    # An empty folder is as good as none.
    if os.path.lexists(place) and os.listdir(place):
        return _finished(place, document, say)
    # Everything is made in a folder beside it, which stays if the command is interrupted.
    aside = f"{files.beside(place)}{files.UNFINISHED}"
    begin_folder("DATA", aside, KIND)
    with _locked(aside, place):
        finished = _resume(aside, document, say)
        result = _run_steps(aside, settings, parts, workers, {**document, "done": finished}, say)
        data = _describe(aside, settings, parts, result)
        # Only now does the folder get its name.
        os.rename(data, place)  # fails where a file or a folder with anything in it has appeared
        files.flush_folder(os.path.dirname(place))
        shutil.rmtree(aside)
    return result


def _finished(place: str, document: Document, say: Callable[[str], None]) -> Document:
    """Return the record of a folder that was made before, of the same texts with the same settings."""
    if not is_made_as(place, KIND):
        raise UserError(f"DATA {place!r} exists, and prepare did not make it; give another name")
    before = _read(place)
    difference = changed(before, document)
    if difference:
        raise UserError(f"DATA {place!r} was made with {difference}; give another name, or remove the folder")
    lost = _lost_file(place, before)
    if lost:
        raise UserError(f"DATA {place!r} has lost {lost}, or it is not complete; remove the folder to make it again")
    say(f"{place} is ready: it was made of the same texts with the same settings")
    return before


def _lost_file(place: str, document: Document) -> str:
    """Return a file of a finished folder that is missing or has another size; "" if there is none."""
    sizes = document.get("sizes")
    for name, size in sizes.items() if isinstance(sizes, dict) else ():
        path = os.path.join(place, name)
        if not os.path.isfile(path) or os.path.getsize(path) != size:
            return str(name)
    return ""


@contextmanager
def _locked(aside: str, place: str) -> Iterator[None]:
    """Keep other processes from making the same folder."""
    # The system releases the lock when this process ends, however it does.
    with open(os.path.join(aside, ".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"DATA {place!r} is being made by another process; wait for it") from None
        except OSError:  # a file system without locks
            pass
        yield


def _resume(aside: str, document: Document, say: Callable[[str], None]) -> Document:
    """Return what finished steps counted, if they had the same texts and settings; otherwise remove what they made."""
    before = _read(aside)
    if before and not changed(before, document):
        done: Document = before.get("done", {})
        if done:
            say(f"resuming after {', '.join(done)}")
        return done
    # Of other texts or settings: nothing of it is used. Only a folder that this command made is ever here.
    for entry in os.scandir(aside):
        if not entry.name.startswith(".") and entry.name != MARKER:
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.remove(entry.path)
    return {}


def _run_steps(
    aside: str,
    settings: Settings,
    parts: Sequence[Part],
    workers: int,
    document: Document,
    say: Callable[[str], None],
) -> Document:
    """Run the steps that are not done; the record is written after each."""
    steps = Steps(settings, parts, aside, workers)
    for name, (progress, step) in steps.in_order().items():
        if name not in document["done"]:
            say(progress)
            # What the step wrote is complete before the record says so.
            document["done"][name] = step()
            _write(aside, document)
    return document


def _describe(aside: str, settings: Settings, parts: Sequence[Part], document: Document) -> str:
    """Write beside fairseq's files how the text was made; return their folder."""
    data = os.path.join(aside, "data")
    subwords = SUBWORDS[settings.subwords]
    # 1. The files of the subwords, and text.json, which has their digests.
    for name in subword_files(settings):
        files.copied_whole(os.path.join(aside, name), os.path.join(data, name))
    write_text_record(data, settings.languages, TOKENIZERS[settings.tokenizer], subwords)
    counts = document["done"]["reading"]
    every = counts.get("every", 0)  # 0: nothing was held out
    # 2. The same by hand.
    with atomic_write(os.path.join(data, "commands.sh")) as file:
        file.write(commands_by_hand(settings, parts, every, counts["valid"]).encode())
    # 3. Raw text of the held-out part, as a reference for scores.
    for language in settings.languages if every else ():
        raw = os.path.join(aside, text_name("valid", "", language))
        files.copied_whole(raw, os.path.join(data, text_name("held_out", "", language)))
    # 4. Sizes, by which a later start sees whether the folder is still whole; the record itself has none.
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(data) if entry.is_file()}
    _write(data, {**document, "sizes": sizes})
    write_marker(data, KIND)
    return data


def _read(folder: str) -> Document:
    """Return the record in a folder; empty if there is none, or only half of one."""
    try:
        with open(os.path.join(folder, RECORD), encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(folder: str, document: Document) -> None:
    with atomic_write(os.path.join(folder, RECORD)) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")
