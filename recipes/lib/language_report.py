"""Scores of a many-to-many model over languages: means, BLEU94, BLEU4 and win ratios, as Zhang et al. (2020) have them.

The paper's win ratio is against the published scores of Zhang et al. with language-aware layers ("LALN + LALT"),
``recipes/opus100/zhang2020.tsv``. A second one is against the recipe's own baseline, where it has been evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe_step import say
from result_tables import ResultTable
from systems import Published

from fairseq_depthwise.evaluation.languages import LanguageScore, summarize, why_missing
from fairseq_depthwise.evaluation.translations import read_lines

GROUPS = ("en-xx", "xx-en", "zero-shot")

#: Published scores by language; the column that the paper's win ratio is against.
PUBLISHED = Path(__file__).parent.parent / "opus100" / "zhang2020.tsv"
PUBLISHED_BASE = "laln_lalt"

#: Group -> language that is not English, or both languages -> score.
Scores = dict[str, dict[str, LanguageScore]]


def language_scores(documents: Mapping[str, Mapping[str, Any]], place: int, baseline: str | None = None) -> Scores:
    """Return the scores of a run, or of its baseline as far as it has been evaluated.

    Args:
        documents: name of each set, such as en-xx/de -> its scores.
        place: of the run's seed among all.
        baseline: its name; None for the run itself.
    """
    scores: Scores = {group: {} for group in GROUPS}
    for name, document in documents.items():
        # "en-xx/de" or "zero-shot/de-fr"
        group, _, languages = name.partition("/")
        run = document["metrics"]["sacrebleu"][place]
        score = run["score"] if baseline is None else run["baseline_scores"].get(baseline)
        if score is not None:
            scores[group][languages] = LanguageScore(score, "sacrebleu", run["signature"])
    return scores


def published_scores(column: str) -> Scores:
    """Return the scores in a column of ``PUBLISHED``, which has no zero-shot directions."""
    # Comments name the source of the numbers.
    lines = [line for line in read_lines(str(PUBLISHED)) if not line.startswith("#")]
    header, *rows = [line.split("\t") for line in lines]
    scores: Scores = {}
    for group in ("en-xx", "xx-en"):
        place = header.index(f"{group} {column}")
        scores[group] = {row[0]: LanguageScore(float(row[place]), "sacrebleu", "") for row in rows}
    return scores


def language_report(
    documents: Mapping[str, Mapping[str, Any]], place: int, baseline: str | None, published: Sequence[Published]
) -> str:
    """Return every direction's score, and the means with the published ones, as a table with notes."""
    scores = language_scores(documents, place)
    base = None if baseline is None else language_scores(documents, place, baseline)
    # A win ratio over some of the directions would not be comparable.
    if base is not None and any(base[group].keys() != scores[group].keys() for group in GROUPS):
        say(f"no win ratio over {baseline}: it has not been evaluated in all of these directions")
        base = None

    numbers = {number.metric: number.text for number in published}
    published_base = published_scores(PUBLISHED_BASE)
    table = ResultTable("direction", "score", "published")
    notes = []
    for group, by_name in scores.items():
        if not by_name:
            continue
        for name, score in by_name.items():
            signature = score.signature  # the same in all directions
            table.add({"direction": f"{group} {name}", "score": f"{score.score:.2f}"})
        summary = summarize(by_name, base[group] if base else None)
        means = {f"mean over {len(by_name)}": summary["mean"]}
        # Means were published only for directions from and to English.
        if group in published_base:
            means["bleu94"] = summary["bleu94"]
            means["bleu4"] = summary["bleu4"]
            means["win_ratio"] = summarize(by_name, published_base[group])["win_ratio"]
            if base:
                means[f"win_ratio over {baseline}"] = summary["win_ratio"]
            notes += [f"no {group} {name}: {reason}" for name, reason in why_missing(by_name).items() if reason]
        for name, value in means.items():
            row = {"direction": f"{group} {name}", "published": numbers.get(f"{group} {name}", "")}
            if value is not None:
                row["score"] = f"{value:.2f}"
            table.add(row)

    notes.append("win_ratio: against the published scores of LALN + LALT (Zhang et al., 2020)")
    notes.append(signature)
    return f"{table.text()}\n" + "".join(f"{note}\n" for note in notes)
