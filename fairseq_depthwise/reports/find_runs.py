"""The runs that a command line names: by their logs, or by the folders that hold these."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.figures import titles_of
from fairseq_depthwise.reports.run_record import RunRecord
from fairseq_depthwise.reports.training_log import read_log

#: The log of a folder, if there are several.
_LOG = "train.log"
#: Checkpoints that record the versions that wrote them; the first that exists is read.
_CHECKPOINTS = ("checkpoint_last.pt", "checkpoint_best.pt")


def read_run(path: str) -> RunRecord:
    """Read a log, or the log of a folder, and the versions in a checkpoint of the same folder.

    Raises:
        UserError: there is nothing at the path, or no training.
    """
    if not path:
        raise UserError("the name of a run is empty; give the log of a training or its save-dir")
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist; give the log of a training or its save-dir")
    is_folder = os.path.isdir(path)
    record = read_log(_log_in(path) if is_folder else path)
    _add_versions(record, path if is_folder else os.path.dirname(path))
    return record


def names_of(paths: Sequence[str]) -> list[str]:
    """Return a name for each run: its folder's where the log has the usual name; different for different runs.

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


def _log_in(folder: str) -> str:
    """Return the path of the folder's log."""
    logs = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    if _LOG in logs:
        logs = [_LOG]
    if not logs:
        raise UserError(f"{folder} holds no training: it has neither {_LOG} nor another *.log")
    if len(logs) > 1:
        example = os.path.join(folder, logs[0])
        raise UserError(f"{folder} holds {', '.join(logs)}; name the run to report, such as {example}")
    return os.path.join(folder, logs[0])


def _add_versions(record: RunRecord, folder: str) -> None:
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
