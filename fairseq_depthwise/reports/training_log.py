"""Read what fairseq-train printed, or wrote with ``--log-file``: any ``--log-format``, one process or several."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from fairseq_compat import UserError
from fairseq_depthwise.reports.logged_config import parse_config
from fairseq_depthwise.reports.run_record import EPOCH, INNER, Process, Reading, RunRecord, joined

#: The head of a line: fairseq's own form and that of fairseq-hydra-train; lines of ``--log-file`` have none.
_HEAD = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? \| \w+ \| [^|]+ \| (?P<message>.*)"
    r"|\[(?P<hydra_stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)?\]\[[^\]]*\]\[\w+\] - (?P<hydra_message>.*)"
)
_CONFIG = re.compile(r"\{'_name': |\{'common': |Namespace\(")
#: ``--log-format simple`` and, on a terminal, ``tqdm``: within an epoch, and at its end or after a validation.
_WITHIN_EPOCH = re.compile(r"epoch \d+:\s+\d+ / \d+ (\w+=.*)|epoch \d+:.*\[.*?, (\w+=.*)\]")
_OF_EPOCH = re.compile(r"epoch \d+ \| (?:valid on '(?P<subset>[^']+)' subset \| )?(?P<values>\w+ \S.*)")
_PARAMETERS = re.compile(r"num\. (?:shared )?model params: (\d[\d,]{,30})\b")
_LOADED = re.compile(r"Loaded checkpoint .* @ (\d{1,18}) updates\)")
_SAVED = re.compile(r"Saved checkpoint .* @ (\d{1,18}) updates, score ([^)]+)\)")
_GREW = re.compile(r"grew the (.+ layers) after (\d{1,18}) updates in [\d.]+ s; (\d[\d,]{,30}) parameters")

#: Metrics from here on count as infinite: nothing can be drawn to their scale.
_LARGEST = 1e300

#: Numbers of a line that are no metrics.
_NO_METRICS = ("epoch", "update", "num_updates")


def read_log(path: str) -> RunRecord:
    """Read the run of a log.

    Raises:
        UserError: the file is empty, is no log of fairseq-train, or has no metrics.
    """
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        processes = parse_log(file)
    if not any(process.readings or process.config for process in processes):
        with open(path, "rb") as beginning:
            if not beginning.read(1):
                raise UserError(f"{path} is empty; give the log of a training or its save-dir")
        raise UserError(
            f"{path} is not a log of fairseq-train: none of its lines has an update's loss or a training's options"
        )
    if not any(process.readings for process in processes):
        raise UserError(
            f"{path} has the options of a training and no loss: it ended before the first --log-interval, or it is "
            "still ahead of it"
        )
    return joined(processes, path)


def parse_log(lines: Iterable[str]) -> list[Process]:
    """Parse the lines of a log into the processes that wrote it; other lines are skipped."""
    process = Process()
    processes = [process]
    now: float | None = None
    walled: float | None = None  # the clock of logs without times: fairseq's own seconds
    for line in _complete(lines):
        stamp, message = _split(line)
        now = now if stamp is None else stamp
        if _CONFIG.match(message) and (config := parse_config(message)):
            if process.readings or process.config:
                process = Process()
                processes.append(process)
                walled = None
            process.config, process.started = config, now
            continue
        reading = _reading(message)
        if reading is None:
            _note(process, message)
            continue
        split, update, values = reading
        if process.readings and update < process.readings[-1].update:
            # Another process began, although the line with its options is missing.
            process = Process(started=now)
            processes.append(process)
        walled = values.get("wall", walled)
        process.readings.append(Reading(split, update, walled if now is None else now, values))
    for process in processes:
        _drop_scores_of_checkpoints(process)
    return processes


def _complete(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, and each state of a progress bar; a truncated last line is left out."""
    for line in lines:
        if line.endswith("\n") or line.endswith("}"):
            yield from line.rstrip("\n").split("\r")


def _split(line: str) -> tuple[float | None, str]:
    """Split a line into its time in seconds and its message."""
    head = _HEAD.match(line)
    if head is None:
        return None, line
    stamp = head["stamp"] or head["hydra_stamp"]
    message = head["message"] if head["message"] is not None else head["hydra_message"]
    try:
        # Local time without a zone: only differences are used, and a change to summer time adds an hour to them.
        return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp(), message
    except ValueError:  # digits that are no time, in a damaged line
        return None, message


def _reading(message: str) -> tuple[str, int, dict[str, float]] | None:
    """Return split, update and values, where a message has them."""
    if message.startswith('{"'):
        return _from_json(message)
    if match := _WITHIN_EPOCH.match(message):
        pairs = (pair.partition("=") for pair in (match[1] or match[2]).split(", "))
        return _from_pairs(INNER, {name: value for name, _, value in pairs})
    if match := _OF_EPOCH.match(message):
        pairs = (pair.strip().partition(" ") for pair in match["values"].split(" | "))
        return _from_pairs(match["subset"] or EPOCH, {name: value for name, _, value in pairs})
    if match := _SAVED.search(message):
        return _from_pairs(_CHECKPOINTS, {"score": match[2], "num_updates": match[1]})
    return None


#: A split for the scores of saved checkpoints, until it is known whether the validations have lines of their own.
_CHECKPOINTS = " checkpoints"


def _from_json(message: str) -> tuple[str, int, dict[str, float]] | None:
    """Parse JSON; the keys of epochs and validations have the name of their split as a prefix."""
    try:
        state = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if "num_updates" in state:
        return _from_pairs(INNER, state)
    split = next((key.removesuffix("_num_updates") for key in state if key.endswith("_num_updates")), None)
    if split is None:
        return None
    prefix = f"{split}_"
    return _from_pairs(split, {key.removeprefix(prefix): value for key, value in state.items()})


def _from_pairs(split: str, pairs: dict[str, object]) -> tuple[str, int, dict[str, float]] | None:
    values = {}
    for name, value in pairs.items():
        try:
            number = float(value)  # type: ignore[arg-type]  # raises unless it is a number
        except (TypeError, ValueError, OverflowError):
            continue
        values[name] = math.copysign(math.inf, number) if abs(number) >= _LARGEST else number
    update = values.get("num_updates", math.nan)
    metrics = {name: value for name, value in values.items() if name not in _NO_METRICS}
    return (split, int(update), metrics) if metrics and math.isfinite(update) else None


def _note(process: Process, message: str) -> None:
    """Record what a message says of the whole process."""
    if match := _PARAMETERS.search(message):
        process.parameters = int(match[1].replace(",", ""))
    elif match := _LOADED.search(message):
        process.continued_from = int(match[1])
    elif match := _GREW.search(message):
        process.grown[int(match[2])] = match[1]
        process.parameters = int(match[3].replace(",", ""))


def _drop_scores_of_checkpoints(process: Process) -> None:
    """Drop the scores of checkpoints, except with ``--log-format none``, which logs no validations."""
    subset = str(process.config.get("dataset", {}).get("valid_subset") or "valid").split(",")[0]
    metric = process.config.get("checkpoint", {}).get("best_checkpoint_metric") or "loss"
    validated = {reading.split for reading in process.readings} - {INNER, EPOCH, _CHECKPOINTS}
    process.readings = [
        reading
        if reading.split != _CHECKPOINTS
        else Reading(subset, reading.update, reading.at, {str(metric): reading.values["score"]})
        for reading in process.readings
        if reading.split != _CHECKPOINTS or not validated
    ]
