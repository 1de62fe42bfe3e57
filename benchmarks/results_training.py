"""Training and scoring commands that the parts of ``results.py`` share, and what their outputs say."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results_commands import Workplace

from fairseq_depthwise.reports.training_log import parse_log

LOG_EVERY = 10


def widths(width: int, heads: int) -> str:
    """Options of width and heads, the same for every architecture."""
    return (
        f"--encoder-embed-dim {width} --decoder-embed-dim {width} "
        f"--encoder-attention-heads {heads} --decoder-attention-heads {heads} --share-all-embeddings --dropout 0.1"
    )


def sizes(layers: int, width: int, heads: int) -> str:
    """Options of depth and width, the same for every architecture."""
    return f"--encoder-layers {layers} --decoder-layers {layers} {widths(width, heads)}"


def training(
    program: str,
    name: str,
    rate: float,
    warm_up: int,
    rest: str,
    *,
    scheduler: str = "inverse_sqrt",
    criterion: str = "label_smoothed_cross_entropy",
) -> str:
    """A training command; Adam, schedule and loss are those of the papers."""
    return (
        f"{program} "
        f"--optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9 --clip-norm 0 --lr-scheduler {scheduler} "
        f"--lr {rate:.6g} --warmup-updates {warm_up} --criterion {criterion} --label-smoothing 0.1 "
        f"{rest} --keep-interval-updates 1 --no-epoch-checkpoints --save-dir {name} "
        f"--log-format json --log-interval {LOG_EVERY} --cpu"
    )


def length(updates: int, max_tokens: int, seed: int, validations: int) -> str:
    """Options of how long is trained on which batches, with that many validations, as far apart as they can be."""
    every = max(1, updates // validations)
    return (
        f"--max-tokens {max_tokens} --max-update {updates} --seed {seed} "
        f"--validate-interval 1000 --validate-interval-updates {every} --save-interval-updates {every}"
    )


def train_and_score(
    place: Workplace, trainings: Mapping[str, str], updates: int, max_tokens: int, target: str, scores: str
) -> dict[str, Any]:
    """Train, translate the test set and score it.

    Args:
        trainings: the command of each model; the others are compared with the first.
        scores: the file for what sacreBLEU prints.

    Returns:
        All ``commands``, what each training's log says in ``runs``, and ``scores``.
    """
    commands, runs = [], {}
    for name, command in trainings.items():
        log = place.train(command, name, updates)
        stock = command.startswith("fairseq-train ")
        later = translation("fairseq-generate" if stock else "fairseq-depthwise generate", name, max_tokens, target)
        for one in later:
            place.run(one)
        commands += [command, *later]
        runs[name] = read_training(log)
    scoring = (
        f"sacrebleu test.{target} -i {' '.join(f'{name}.hyp' for name in trainings)} -m bleu chrf --paired-bs "
        f"-f text > {scores}"
    )
    place.run(scoring)
    table = (place.folder / scores).read_text(encoding="utf-8")
    return {"commands": [*commands, scoring], "runs": runs, "scores": read_scores(table, list(trainings))}


def translation(program: str, name: str, max_tokens: int, target: str) -> list[str]:
    """The commands from a trained model to its translation of the test set."""
    return [
        f"{program} data-bin --path {name}/checkpoint_last.pt --beam 4 --lenpen 0.6 --max-tokens {max_tokens} "
        f"--remove-bpe --cpu > {name}.generated",
        # fairseq sorts sentences by length; their numbers bring them back into the order of the test file.
        f"grep ^H- {name}.generated | sort -t - -k 2n | cut -f 3- | sacremoses -q -l {target} detokenize > {name}.hyp",
    ]


def read_training(log: Path) -> dict[str, Any]:
    """What a training's log says: its updates and validations by number, parameters, seconds and speed."""
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
    """The values of a split by update; of an update that was repeated after a stop, the later ones."""
    found = {
        reading.update: {key: reading.values.get(key, math.nan) for key in keys}
        for process in parse_log(text.splitlines(keepends=True))
        for reading in process.readings
        if reading.split == split
    }
    return dict(sorted(found.items()))


def read_scores(table: str, names: Sequence[str]) -> dict[str, Any]:
    """The scores in the table that ``sacrebleu --paired-bs -f text`` prints for NAME.hyp of each name.

    Its JSON would be easier to read; sacreBLEU 2.6.0 cannot write it for the results of this test.
    """
    systems: dict[str, Any] = {}
    current = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("\N{BOX DRAWINGS LIGHT VERTICAL}")[1:-1]]
        if len(cells) != 3:
            continue
        name = cells[0].removeprefix("Baseline: ").removesuffix(".hyp")
        if name in names:
            current = name
            systems[name] = {
                metric: {"score": cell.split()[0], "interval": cell.partition("(")[2].rstrip(")"), "p": ""}
                for metric, cell in zip(("BLEU", "chrF2"), cells[1:], strict=True)
            }
        elif not name and current:  # the line below a system that is not the baseline
            for metric, cell in zip(("BLEU", "chrF2"), cells[1:], strict=True):
                systems[current][metric]["p"] = cell.partition("= ")[2].rstrip(")* ")
    return {"systems": systems, "signatures": dict(re.findall(r"^ - (BLEU|chrF2)\s+(\S+)$", table, re.MULTILINE))}
