"""Training and scoring commands of real text, and what their outputs say."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workplace import Workplace

from fairseq_depthwise.reports.training_log import parse_log

LOG_EVERY = 10


def widths(width: int, heads: int) -> str:
    """Return options of width and heads, the same for every architecture."""
    return (
        f"--encoder-embed-dim {width} --decoder-embed-dim {width} "
        f"--encoder-attention-heads {heads} --decoder-attention-heads {heads} --share-all-embeddings"
    )


def training(program: str, name: str, rate: float, warm_up: int, rest: str) -> str:
    """Return a training command; Adam, schedule and loss are those of the papers.

    Args:
        program: with the options of the model, and with a schedule or rate of its own if it has one.
        name: of the folder of checkpoints.
        rate, warm_up: peak of the learning rate, and updates until then.
        rest: further options.
    """
    scheduler = "" if " --lr-scheduler " in program else "--lr-scheduler inverse_sqrt "
    peak = "" if " --lr " in program else f"--lr {rate:.6g} "
    return (
        f"{program} --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 0 {scheduler}{peak}"
        f"--warmup-updates {warm_up} --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
        f"{rest} --keep-interval-updates 1 --no-epoch-checkpoints --save-dir {name} "
        f"--log-format json --log-interval {LOG_EVERY} --cpu"
    )


def train_and_score(place: Workplace, trainings: Mapping[str, str], max_tokens: int, target: str) -> dict[str, Any]:
    """Train, translate the test set and score it.

    Args:
        trainings: the command of each model; the others are compared with the first.

    Returns:
        All ``commands``; what each training's log says in ``runs``, and the ``length`` of its translations, by that of
        the reference; and ``scores``: metric -> what ``compare`` prints.
    """
    commands, runs, scores = [], {}, {}
    for name, command in trainings.items():
        log = place.train(command, name)
        program = "fairseq-generate" if command.startswith("fairseq-train ") else "fairseq-depthwise generate"
        translation = (
            f"{program} data-bin --path {name}/checkpoint_last.pt --beam 4 --lenpen 0.6 --max-tokens {max_tokens} "
            f"--remove-bpe --cpu > {name}.generated"
        )
        place.run(translation)
        commands += [command, translation]
        runs[name] = read_training(log)
    translations = " ".join(f"{name}.generated" for name in trainings)

    def printed(program: str, name: str) -> Any:
        file = f"{next(iter(trainings))}-{name}.json"
        command = f"{program} --ref test.{target} --detokenize {target} --json {translations} > {file}"
        place.run(command)
        commands.append(command)
        return json.loads((place.folder / file).read_text(encoding="utf-8"))

    for metric in ("sacrebleu", "chrf"):
        scores[metric] = printed(f"fairseq-depthwise compare --metric {metric}", metric)
    for run, parts in zip(runs.values(), printed("fairseq-depthwise score", "score"), strict=True):
        run["length"] = parts["hypothesis_length"] / parts["reference_length"]
    return {"commands": commands, "runs": runs, "scores": scores}


def read_training(log: Path) -> dict[str, Any]:
    """Read a training's log: its updates and validations by number, parameters, seconds and speed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    updates = logged(text, "train_inner", ("loss", "gnorm", "wps", "train_wall"))
    parameters = re.search(r"num\. shared model params: ([\d,]+)", text)
    return {
        "parameters": int(parameters[1].replace(",", "")) if parameters else 0,
        "seconds": sum(state["train_wall"] for state in updates.values()),
        "tokens_per_second": statistics.median([state["wps"] for state in updates.values()] or [0]),
        "train": {number: {key: state[key] for key in ("loss", "gnorm")} for number, state in updates.items()},
        "valid": logged(text, "valid", ("loss", "nll_loss")),
    }


def logged(text: str, split: str, keys: Sequence[str]) -> dict[int, dict[str, float]]:
    """Return the values of a split by update; of an update that was repeated after a stop, the later ones."""
    run = parse_log(text.splitlines(keepends=True), "")
    return {
        update: {key: values.get(key, math.nan) for key in keys}
        for of_split, update, _, values in run.readings
        if of_split == split
    }


# --- growth -------------------------------------------------------------------------------------------------------

_GREW = re.compile(r"grew the encoder from (\d+) to (\d+) layers after (\d+) updates in ([\d.]+) s")


def growth_steps(log: str) -> list[dict[str, float]]:
    """Return the growth steps of a log: layers before and after, updates until then, and seconds."""
    names = ("before", "after", "updates", "seconds")
    return [dict(zip(names, map(float, step), strict=True)) for step in _GREW.findall(log)]


def step_times(log: str, lengths: Mapping[int, int]) -> dict[int, float]:
    """Return layers -> seconds of an update with that many, the median, from a log with a line for each update.

    Args:
        lengths: layers -> updates, in the order of training.
    """
    # From tokens per second, the only time that fairseq logs with more than a digit or two; 0 in a process's first.
    updates = logged(log, "train_inner", ("wpb", "wps"))
    seconds = {number: state["wpb"] / state["wps"] for number, state in updates.items() if state["wps"]}
    result, end = {}, 0
    for layers, length in lengths.items():
        if timed := [seconds[number] for number in range(end + 1, end + length + 1) if number in seconds]:
            result[layers] = statistics.median(timed)
        end += length
    return result
