"""Read the event files of ``--tensorboard-logdir``: a folder for each split, a file in it for each process."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from fairseq_compat import UserError
from fairseq_depthwise.reports.run_record import Process, Reading, RunRecord, joined

#: What the names of event files have in them.
_MARK = "tfevents"
#: fairseq writes its command line into every file, as a text with this name.
_COMMAND = "sys.argv/text_summary"
#: A record: its length in 8 bytes and their checksum in 4, the record, its checksum in 4.
_LENGTH, _CHECKSUM = 12, 4


@dataclass
class _EventFile:
    """One process's readings of one split."""

    split: str
    readings: list[Reading] = field(default_factory=list)
    command: str | None = None
    damage: str | None = None


def event_files(folder: str) -> dict[str, list[str]]:
    """Split -> its event files in the order of their names, which begin with the time; empty where there are none."""
    found = {}
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if entry.is_dir() and (files := _in_folder(entry.path)):
            found[entry.name] = files
    return found


def read_events(folder: str) -> RunRecord:
    """The run whose event files are in the folders of a folder.

    Raises:
        UserError: tensorboardX is missing, a file is no event file, or none has anything that was measured.
    """
    files = [_read(path, split) for split, paths in event_files(folder).items() for path in paths]
    if not any(file.readings for file in files):
        raise UserError(f"{folder} has event files, and nothing that was measured is in them")
    record = joined(_processes(files), folder)
    record.notes += [file.damage for file in files if file.damage]
    return record


def _in_folder(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except PermissionError:
        return []
    return [os.path.join(folder, name) for name in names if _MARK in name]


def _processes(files: list[_EventFile]) -> list[Process]:
    """Files together by process: each process has one file of a split, so a second one belongs to the next process."""
    processes: list[Process] = []
    splits: set[str] = set()
    for file in sorted((file for file in files if file.readings), key=lambda file: file.readings[0].at or 0.0):
        if not processes or file.split in splits:
            processes.append(Process())
            splits = set()
        splits.add(file.split)
        processes[-1].readings += file.readings
        processes[-1].command = file.command
    for process in processes:
        process.readings.sort(key=lambda reading: reading.at or 0.0)
    return processes


def _read(path: str, split: str) -> _EventFile:
    """What is in one file; a tail that is cut off, as after a kill, is left out."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types
        from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # has no types
    except ImportError:
        raise UserError(
            f"{path} is an event file, and reading it needs tensorboardX: pip install tensorboardX"
        ) from None
    file = _EventFile(split)
    found: dict[int, tuple[float, dict[str, float]]] = {}
    try:
        for record in _records(path):
            event = Event.FromString(record)
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(event.step, (event.wall_time, {}))[1][value.tag] = value.simple_value
                elif value.tag == _COMMAND and value.tensor.string_val:
                    file.command = value.tensor.string_val[0].decode("utf-8", errors="replace")
    except (_DamagedError, DecodeError) as damage:
        if not found:
            raise UserError(f"{path} is not an event file of TensorBoard: {damage}") from None
        file.damage = f"{path} is read up to update {max(found):,}: {damage}."
    file.readings = [Reading(split, step, at, values) for step, (at, values) in found.items()]
    return file


class _DamagedError(Exception):
    """Says what is wrong with a record."""


def _records(path: str) -> Iterator[bytes]:
    from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]  # has no types

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        while len(header := file.read(_LENGTH)) == _LENGTH:
            length, checksum = struct.unpack("<QI", header)
            if masked_crc32c(header[:8]) != checksum:
                raise _DamagedError(f"the length at byte {file.tell() - _LENGTH:,} does not have its checksum")
            if file.tell() + length + _CHECKSUM > size:
                return
            yield file.read(length)
            file.read(_CHECKSUM)
