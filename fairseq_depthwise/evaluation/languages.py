"""Scores over many languages: mean, BLEU94, BLEU4 and win ratio, as on OPUS-100 (Zhang et al., 2020)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.scores import METRICS

#: The languages of OPUS-100 with a test set, to and from English: BLEU94 is the mean over them.
_CODES = """
    af am ar as az be bg bn br bs ca cs cy da de el eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu id ig is it ja
    ka kk km kn ko ku ky li lt lv mg mk ml mr ms mt my nb ne nl nn no oc or pa pl ps pt ro ru rw se sh si sk sl sq sr
    sv ta te tg th tk tr tt ug uk ur uz vi wa xh yi zh zu
"""
TESTED = tuple(_CODES.split())

#: Name of a mean -> its languages; those of BLEU4 are typologically different.
MEANS = {"bleu94": TESTED, "bleu4": ("de", "zh", "br", "te")}

#: Suffixes of results, and of references.
RESULT_ENDINGS = (".hyp", ".txt", ".json")
REFERENCE_ENDINGS = (".ref", ".txt")


class LanguageScore(NamedTuple):
    """A system's score in one language; scores with the same signature are comparable."""

    score: float
    metric: str
    signature: str


def files_by_language(folder: str, endings: Sequence[str]) -> dict[str, str]:
    """Return the files of a folder by language; a file is named LANG followed by one of the endings.

    Raises:
        UserError: the folder has no such file, or two of one language.
    """
    # Two files of one language would have one stem.
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix in endings)
    files = {path.stem: str(path) for path in paths}
    if not files or len(files) < len(paths):
        raise UserError(f"{folder} must have one file for each language, named LANG and one of {', '.join(endings)}")
    return files


def read_score(path: str) -> LanguageScore:
    """Read the output of ``fairseq-depthwise score --json``.

    Raises:
        UserError: the score is not finite.
    """
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    score = float(document["score"])
    if not math.isfinite(score):
        raise UserError(f"{path} has the score {score}, which is not finite; score that language again")
    return LanguageScore(score, str(document["metric"]), str(document["signature"]))


def require_comparable(systems: Sequence[tuple[str, Mapping[str, LanguageScore]]]) -> None:
    """Raise UserError unless all systems have scores of the same languages, computed in the same way.

    ``systems``: name and scores of each; the base, with which the others are compared, is the first.
    """
    base, expected = systems[0]
    for name, scores in systems:
        different = expected.keys() ^ scores.keys()
        if different:
            raise UserError(f"{base} and {name} have results for different languages: {_list_first(sorted(different))}")
        for language, score in scores.items():
            # A signature names metric, tokenizer and sacreBLEU's version.
            signature = expected[language].signature
            if score.signature != signature:
                raise UserError(
                    f"{language} is scored with {score.signature} in {name} and with {signature} in {base}; score both "
                    "in the same way"
                )
    metrics = {score.metric for score in expected.values()}
    if len(metrics) > 1:
        raise UserError(f"{base} has scores of several metrics, {' and '.join(sorted(metrics))}; use one for all")


def why_missing(scores: Mapping[str, LanguageScore]) -> dict[str, str | None]:
    """Return, for each of :data:`MEANS`, why it cannot be computed, or None if it can.

    All need sacreBLEU's default tokenizer.
    """
    for language, score in scores.items():
        # The published means use this tokenizer for all languages, even those without spaces.
        if "tok:13a" not in score.signature.split("|"):
            return dict.fromkeys(MEANS, f"{language} is not scored with sacreBLEU's default, but {score.signature}")
    reasons: dict[str, str | None] = {}
    for name, languages in MEANS.items():
        missing = [language for language in languages if language not in scores]
        reasons[name] = None
        if missing:
            reasons[name] = f"{len(missing)} of the {len(languages)} languages are missing: {_list_first(missing)}"
    return reasons


def summarize(
    scores: Mapping[str, LanguageScore], base: Mapping[str, LanguageScore] | None = None
) -> dict[str, float | None]:
    """Return a system's ``mean`` over all languages, :data:`MEANS`, and ``win_ratio`` over the base in percent.

    A mean is None where :func:`why_missing` has a reason; the win ratio is None without a base.
    """
    summary: dict[str, float | None] = {"mean": fmean(score.score for score in scores.values())}
    for name, reason in why_missing(scores).items():
        summary[name] = None
        if reason is None:
            summary[name] = fmean(scores[language].score for language in MEANS[name])
    summary["win_ratio"] = None
    if base:
        # A tie does not count as a win.
        wins = [_is_better(score, base[language]) for language, score in scores.items()]
        summary["win_ratio"] = 100 * fmean(wins)
    return summary


def _is_better(score: LanguageScore, other: LanguageScore) -> bool:
    spec = METRICS.get(score.metric)
    if spec is not None and spec.lower_is_better:
        return score.score < other.score
    return score.score > other.score


def _list_first(languages: Sequence[str]) -> str:
    """Return the first ten languages as text, for errors."""
    named = ", ".join(languages[:10])
    return f"{named} ..." if len(languages) > 10 else named
