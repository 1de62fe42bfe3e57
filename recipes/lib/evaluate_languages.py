"""Scores a many-to-many model in every direction that has a test set, all of them in parallel; of evaluate.py.

Translates each test set into ``evaluation/en-xx/LANGUAGE.txt``, ``evaluation/xx-en`` and ``evaluation/zero-shot``, one
process on each GPU (or ``PROCESSES`` on a CPU), and prints BLEU94, BLEU4 and the win ratio as far as the languages are
there. A direction that was translated is not done again.

The paper's win ratio is against published scores, those of Zhang et al. with language-aware layers ("LALN + LALT"),
``recipes/opus100/zhang2020.tsv``. A second one is against the recipe's own baseline, where it has been evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from evaluate import checkpoint_of, results_of, write_json
from made_of import Inputs, digests, digests_in, is_made_of, making
from recipe_step import run_command_line, run_folder, say, whole_number
from systems import Published, System

from fairseq_compat.provenance import file_digest
from fairseq_depthwise import tables
from fairseq_depthwise.evaluation.languages import LanguageScore, summarize, why_missing
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.translations import read_lines
from recipes import RECIPES, Recipe

GROUPS = ("en-xx", "xx-en", "zero-shot")

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


def evaluate_languages(recipe: str, name: str, system: System, work: Path) -> None:
    """Average, translate, score, and print all that there is."""
    run = run_folder(os.environ, name)
    folder, checkpoint, directions = results_of(run), checkpoint_of(system, run), directions_of(work / "text")
    translate_all(RECIPES[recipe], checkpoint, work / "data-bin", folder, directions)
    scores = _scores(directions, folder)
    settings = f"beam {RECIPES[recipe].beam}, lenpen {RECIPES[recipe].length_penalty}"
    print(f"{recipe}, {name}: {system.about}; {settings}, sacreBLEU\n")
    base = _baseline(system.baseline, directions)
    print(report(scores, base, system.baseline, system.published.get(recipe, ())))
    write_json(
        folder / "scores.json",
        {group: {name: score._asdict() for name, score in by_name.items()} for group, by_name in scores.items()},
    )


def _scores(directions: Sequence[Direction], folder: Path) -> Scores:
    return {group: {each.name: each.score(folder) for each in directions if each.group == group} for group in GROUPS}


def directions_of(text: Path) -> list[Direction]:
    """Return every direction with a test set."""
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
    return directions


def translate_all(recipe: Recipe, checkpoint: Path, data: Path, folder: Path, directions: Sequence[Direction]) -> None:
    """Translate test sets in as many processes as there are GPUs, or as ``PROCESSES`` says.

    What was translated with this checkpoint and these data is not translated again.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    processes = gpus or whole_number(os.environ, "PROCESSES", 1)
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(processes)))).split(",")
    # More threads than cores would wait for each other.
    threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // processes))
    search = ["--beam", recipe.beam, "--lenpen", recipe.length_penalty]
    of_all: Inputs = {
        "checkpoint": file_digest(str(checkpoint)),
        "options": digests_in([*recipe.text_options(data), *search]),
        "dictionaries": digests(sorted(data.glob("dict.*"))),
    }
    missing: list[tuple[Direction, Inputs]] = []
    for direction in directions:
        inputs = {**of_all, "text": file_digest(f"{direction.prefix}.{direction.source}")}
        if not is_made_of(direction.translations(folder), inputs):
            missing.append((direction, inputs))
    options = ["--data", data, *search, "--force", "--max-tokens", whole_number(os.environ, "MAX_TOKENS", 8192)]
    options += [] if gpus else ["--cpu", "--threads", threads]

    def translate(place: int) -> None:
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": visible[place]} if gpus else {})}
        for direction, inputs in missing[place::processes]:
            source, target, output = direction.source, direction.target, direction.translations(folder)
            say(f"translating {source}-{target}")
            output.parent.mkdir(parents=True, exist_ok=True)
            with making(output, inputs):
                run_command_line(
                    *("translate", checkpoint, f"{direction.prefix}.{source}", "--output", output),
                    *("-s", source, "-t", target, *options),
                    env=environment,
                )

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
