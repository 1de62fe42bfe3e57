"""From what the command line names to runs: logs, folders of event files, folders that hold one of these."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.figures import titles_of
from fairseq_depthwise.reports.event_files import event_files, read_events
from fairseq_depthwise.reports.run_record import RunRecord
from fairseq_depthwise.reports.training_log import read_log

#: The log that a folder's run is read from, if there are several.
_LOG = "train.log"
#: Checkpoints that may say which versions wrote them; the first one that is there is looked at.
_CHECKPOINTS = ("checkpoint_last.pt", "checkpoint_best.pt")
#: Entries of a folder that an error lists.
_LISTED = 6


def read_run(path: str) -> RunRecord:
    """The run at a path.

    Raises:
        UserError: there is nothing at the path, or no training.
    """
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist; give the log of a training, its TensorBoard folder or its save-dir")
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.isdir(path):
        if "tfevents" in os.path.basename(path):
            raise UserError(
                f"{path} is one event file of a run; give the folder of --tensorboard-logdir, which holds train_inner/"
            )
        record = read_log(path)
    elif event_files(path):
        record, folder = read_events(path), os.path.dirname(os.path.abspath(path))
    else:
        record = _in_save_dir(path)
    _add_versions(record, folder)
    return record


def names_of(paths: Sequence[str]) -> list[str]:
    """What to call runs: by their folder where the log has the usual name, and apart from one another.

    Raises:
        UserError: a run is given twice.
    """
    normal = [os.path.normpath(path) for path in paths]
    twice = next((path for path in normal if normal.count(path) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; give each run once")
    absolute = [os.path.abspath(path) for path in normal]
    names = titles_of([os.path.dirname(path) if os.path.basename(path) == _LOG else path for path in absolute])
    return names if len(set(names)) == len(names) else normal


def _in_save_dir(folder: str) -> RunRecord:
    """The run of a folder with a log, or with a folder of event files."""
    logs = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    events = [entry.path for entry in sorted(os.scandir(folder), key=lambda one: one.name) if _has_events(entry)]
    if _LOG in logs:
        logs = [_LOG]
    if len(logs) > 1 or (not logs and len(events) > 1):
        several = logs or [os.path.basename(path) for path in events]
        example = os.path.join(folder, several[0])
        raise UserError(f"{folder} holds {', '.join(several)}; name the run to report, such as {example}")
    if not logs and not events:
        present = sorted(os.listdir(folder))
        listed = ", ".join(present[:_LISTED]) + (
            f" and {len(present) - _LISTED} more" if len(present) > _LISTED else ""
        )
        raise UserError(
            f"{folder} holds no training: looked for {_LOG}, one *.log, and event files in train_inner/ and the like, "
            f"here and one folder below; found {listed or 'nothing'}"
        )
    if not logs:
        return read_events(events[0])
    record = read_log(os.path.join(folder, logs[0]))
    if len(events) == 1:
        # The log has no command line.
        try:
            record.command = read_events(events[0]).command
        except UserError as problem:
            record.notes.append(f"The command is not known: {problem}.")
    return record


def _has_events(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and bool(event_files(entry.path))


def _add_versions(record: RunRecord, folder: str) -> None:
    """The versions in a checkpoint beside the log."""
    name = next((name for name in _CHECKPOINTS if os.path.isfile(os.path.join(folder, name))), None)
    if name is None:
        return
    try:
        state = checkpoints.load_checkpoint(os.path.join(folder, name), mapped=True)
    except (UserError, OSError) as problem:
        record.notes.append(f"The versions are not known: {problem}.")
        return
    record.versions = dict((state.get("extra_state") or {}).get("versions") or {})
    record.versions_from = name
