"""Scores a many-to-many model in every direction that has a test set, all of them in parallel.

    python evaluate_languages.py opus100 SYSTEM

Averages the last checkpoints, translates each test set into ``evaluation/en-xx/LANGUAGE.txt``, ``evaluation/xx-en``
and ``evaluation/zero-shot``, one process on each GPU (or ``PROCESSES`` on a CPU), and prints BLEU94, BLEU4 and the win
ratio as far as the languages are there. A direction that was translated is not done again.

The paper's win ratio is against published scores, those of Zhang et al. with language-aware layers ("LALN + LALT"),
``recipes/opus100/zhang2020.tsv``. A second one is against the recipe's own baseline, where it has been evaluated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from evaluate import checkpoint_of, results_of, with_average
from recipe_step import run_folder, run_step, say, whole_number
from systems import Published

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise import tables
from fairseq_depthwise.evaluation.languages import LanguageScore, summarize, why_missing
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.translations import read_lines
from recipes import RECIPES, system_of

RECIPE = "opus100"
GROUPS = ("en-xx", "xx-en", "zero-shot")
BEAM, LENGTH_PENALTY = RECIPES[RECIPE].beam, RECIPES[RECIPE].length_penalty

#: Published scores by language; the column that the paper's win ratio is against.
PUBLISHED = Path(__file__).parent.parent / "opus100" / "zhang2020.tsv"
PUBLISHED_BASE = "laln_lalt"


#: Group -> name of the direction -> its score.
Scores = dict[str, dict[str, LanguageScore]]


class Direction(NamedTuple):
    """A test set.

    Attributes:
        group: one of GROUPS.
        name: the language that is not English, or both of them.
        source, target: languages.
        prefix: of the two files of text.
    """

    group: str
    name: str
    source: str
    target: str
    prefix: str

    def translations(self, folder: Path) -> Path:
        return folder / self.group / f"{self.name}.txt"

    def score(self, folder: Path) -> LanguageScore:
        reference = read_lines(f"{self.prefix}.{self.target}")
        scored = TranslationMetric().score(read_lines(str(self.translations(folder))), [reference])
        return LanguageScore(scored.score, "sacrebleu", scored.signature)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=(RECIPE,))
    parser.add_argument("system")
    options = parser.parse_args()
    system = with_average(system_of(RECIPE, options.system))
    work = Path(os.environ["WORK"])
    run = run_folder(os.environ, options.system)
    folder = results_of(run)
    checkpoint = checkpoint_of(system, run)
    directions = directions_of(work / "text")
    for group in GROUPS:
        (folder / group).mkdir(parents=True, exist_ok=True)
    newest = checkpoint.stat().st_mtime
    todo = [
        direction
        for direction in directions
        if not (path := direction.translations(folder)).exists() or path.stat().st_mtime < newest
    ]
    translate_all(str(checkpoint), str(work / "data-bin"), folder, todo)
    scores = _scores(directions, folder)
    base = _baseline(system.baseline, directions)
    print(f"{RECIPE}, {options.system}: {system.about}; beam {BEAM}, lenpen {LENGTH_PENALTY}, sacreBLEU\n")
    print(report(scores, base, system.baseline, system.published.get(RECIPE, ())))
    with atomic_write(folder / "scores.json") as file:
        document = {
            group: {name: score._asdict() for name, score in by_name.items()} for group, by_name in scores.items()
        }
        file.write((json.dumps(document, indent=2) + "\n").encode())


def _scores(directions: Sequence[Direction], folder: Path) -> Scores:
    return {group: {each.name: each.score(folder) for each in directions if each.group == group} for group in GROUPS}


def directions_of(text: Path) -> list[Direction]:
    """Return every direction with a test set.

    Raises:
        UserError: there is none.
    """
    directions = []
    for path in sorted(text.glob("test.en-*.en")):
        language = path.name.split(".")[1].removeprefix("en-")
        prefix = str(path.with_suffix(""))
        directions.append(Direction("en-xx", language, "en", language, prefix))
        directions.append(Direction("xx-en", language, language, "en", prefix))
    for report_file in sorted(text.glob("zero-shot/*-*.report.txt")):
        prefix = str(report_file).removesuffix(".report.txt")
        first, second = Path(prefix).name.split("-")
        for source, target in ((first, second), (second, first)):
            directions.append(Direction("zero-shot", f"{source}-{target}", source, target, prefix))
    if not directions:
        raise UserError(f"{text} has no test sets; run prepare.sh first")
    return directions


def translate_all(checkpoint: str, data: str, folder: Path, directions: Sequence[Direction]) -> None:
    """Translate test sets in as many processes as there are GPUs, or as ``PROCESSES`` says.

    Raises:
        UserError: a command fails.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    processes = gpus or whole_number(os.environ, "PROCESSES", 1)
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(processes)))).split(",")
    # More threads than cores would wait for each other.
    threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // processes))
    options = ["--data", data, "--beam", str(BEAM), "--lenpen", str(LENGTH_PENALTY), "--force"]
    options += ["--max-tokens", str(whole_number(os.environ, "MAX_TOKENS", 8192))]
    options += [] if gpus else ["--cpu", "--threads", str(threads)]

    def translate(place: int) -> None:
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": visible[place]} if gpus else {})}
        for direction in directions[place::processes]:
            source, target = direction.source, direction.target
            say(f"translating {source}-{target}")
            command = [sys.executable, "-m", "fairseq_depthwise", "translate", checkpoint]
            command += [f"{direction.prefix}.{source}", "--output", str(direction.translations(folder))]
            command += ["-s", source, "-t", target, *options]
            if status := subprocess.run(command, env=environment).returncode:
                raise UserError(f"translate ended with status {status}; what it printed above says why")

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(translate, range(processes)))


def _baseline(name: str | None, directions: Sequence[Direction]) -> Scores | None:
    """Return the scores of the baseline, if it was evaluated in all of these directions."""
    if name is None:
        return None
    folder = results_of(run_folder(os.environ, name))
    if not all(direction.translations(folder).exists() for direction in directions):
        say(f"no win ratio over {name}: it has not been evaluated in all of these directions")
        return None
    return _scores(directions, folder)


def published_scores(column: str) -> Scores:
    """Return group -> language -> score of a column of ``PUBLISHED``."""
    header, *rows = (line.split("\t") for line in read_lines(str(PUBLISHED)) if not line.startswith("#"))
    return {
        group: {row[0]: LanguageScore(float(row[place]), "sacrebleu", "") for row in rows}
        for group in GROUPS
        if f"{group} {column}" in header
        for place in [header.index(f"{group} {column}")]
    }


def report(scores: Scores, base: Scores | None, baseline: str | None, published: Sequence[Published]) -> str:
    """Return every direction, and the means with the published ones; ``base`` are the scores of ``baseline``."""
    numbers = {score.metric: score.text for score in published}
    rows, notes = [["direction", "score", "published"]], []
    for group, by_name in scores.items():
        if not by_name:
            continue
        rows += [[f"{group} {name}", f"{score.score:.2f}", "-"] for name, score in by_name.items()]
        summary = summarize(by_name, base[group] if base else None)
        means = {f"mean over {len(by_name)}": summary["mean"]}
        if group != "zero-shot":
            wins = summarize(by_name, published_scores(PUBLISHED_BASE)[group])["win_ratio"]
            means |= {"bleu94": summary["bleu94"], "bleu4": summary["bleu4"], "win_ratio": wins}
            if base:
                means[f"win_ratio over {baseline}"] = summary["win_ratio"]
            notes += [f"no {group} {name}: {reason}" for name, reason in why_missing(by_name).items() if reason]
        for name, value in means.items():
            label = f"{group} {name}"
            rows.append([label, "-" if value is None else f"{value:.2f}", numbers.get(label, "-")])
    notes.append("win_ratio: against the published scores of LALN + LALT (Zhang et al., 2020)")
    signature = next(score.signature for by_name in scores.values() for score in by_name.values())
    return tables.aligned(rows) + "\n" + "".join(f"{line}\n" for line in (*notes, signature))


if __name__ == "__main__":
    run_step(main)
