"""Scores over many languages: the mean, and BLEU94, BLEU4 and win ratio of OPUS-100 (Zhang et al., 2020)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from fairseq_compat import UserError

#: The languages of OPUS-100 with a test set, to and from English, that BLEU94 is the mean of.
_CODES = """
    af am ar as az be bg bn br bs ca cs cy da de el eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu id ig is it ja
    ka kk km kn ko ku ky li lt lv mg mk ml mr ms mt my nb ne nl nn no oc or pa pl ps pt ro ru rw se sh si sk sl sq sr
    sv ta te tg th tk tr tt ug uk ur uz vi wa xh yi zh zu
"""
TESTED = tuple(_CODES.split())

#: The four typologically different languages that BLEU4 is the mean of.
FOUR = ("de", "zh", "br", "te")

#: Suffixes of results, and of references.
RESULT_ENDINGS = (".hyp", ".txt", ".json")
REFERENCE_ENDINGS = (".ref", ".txt")


class LanguageScore(NamedTuple):
    """A system's score in one language; scores with the same signature are comparable."""

    score: float
    metric: str
    signature: str


@dataclass(frozen=True)
class Summary:
    """A system's scores in many languages: means over all, OPUS-100's 94 and :data:`FOUR`; wins in per cent.

    None stands where :func:`why_no_bleu94` or :func:`why_no_bleu4` has a reason; ``win_ratio`` of the base is None.
    """

    mean: float
    bleu94: float | None
    bleu4: float | None
    win_ratio: float | None


def files_by_language(folder: str, endings: Sequence[str]) -> dict[str, str]:
    """Return the files of a folder by language: their names are a language and one of the endings."""
    files: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        language, ending = os.path.splitext(name)
        if ending not in endings:
            continue
        if language in files:
            raise UserError(f"{folder} has {os.path.basename(files[language])} and {name}; keep one for each language")
        files[language] = os.path.join(folder, name)
    if not files:
        raise UserError(f"{folder} has no file named LANG and one of {', '.join(endings)}")
    return files


def read_score(path: str) -> LanguageScore:
    """Read the output of ``fairseq-depthwise score --json``."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    return LanguageScore(float(document["score"]), str(document["metric"]), str(document["signature"]))


def require_comparable(systems: Sequence[tuple[str, Mapping[str, LanguageScore]]]) -> None:
    """Raise UserError unless all systems, the base first, have scores of the same languages, scored in the same way."""
    base, expected = systems[0]
    for name, scores in systems:
        if missing := expected.keys() ^ scores.keys():
            raise UserError(f"{base} and {name} have results for different languages: {_some(sorted(missing))}")
        for language, score in scores.items():
            if score.signature != expected[language].signature:
                raise UserError(
                    f"{language} is scored with {score.signature} in {name} and with {expected[language].signature} in "
                    f"{base}; score both in the same way"
                )
    if len(metrics := {score.metric for score in expected.values()}) > 1:
        raise UserError(f"{base} has scores of several metrics, {' and '.join(sorted(metrics))}; use one for all")


def why_no_bleu94(scores: Mapping[str, LanguageScore]) -> str | None:
    """Return why the mean over some languages is not BLEU94; None if it is."""
    if reason := _other_bleu(scores):
        return reason
    if missing := [language for language in TESTED if language not in scores]:
        return f"{len(missing)} of the 94 languages are missing: {_some(missing)}"
    others = sorted(scores.keys() - set(TESTED))
    return f"other languages are there: {_some(others)}" if others else None


def why_no_bleu4(scores: Mapping[str, LanguageScore]) -> str | None:
    """Return why there is no BLEU4; None if there is."""
    missing = [language for language in FOUR if language not in scores]
    return _other_bleu(scores) or (f"{', '.join(missing)} missing" if missing else None)


def summarize(scores: Mapping[str, LanguageScore], base: Mapping[str, LanguageScore] | None = None) -> Summary:
    """Return the summary of a system's scores by language; ``base`` has those that it is compared with, if any."""
    mean = fmean(score.score for score in scores.values())
    wins = None
    if base is not None:
        wins = 100 * fmean(score.score > base[language].score for language, score in scores.items())
    return Summary(
        mean=mean,
        bleu94=None if why_no_bleu94(scores) else mean,
        bleu4=None if why_no_bleu4(scores) else fmean(scores[language].score for language in FOUR),
        win_ratio=wins,
    )


def _other_bleu(scores: Mapping[str, LanguageScore]) -> str | None:
    """Return why there is neither mean, if a score is not sacreBLEU's with its default tokenizer."""
    for language, score in scores.items():
        if score.metric != "sacrebleu" or "tok:13a" not in score.signature.split("|"):
            return f"{language} is not scored with sacreBLEU's default, but {score.metric} {score.signature}"
    return None


def _some(languages: Sequence[str]) -> str:
    return ", ".join(languages[:10]) + (" ..." if len(languages) > 10 else "")
