"""``compare``: systems against a base, with tests of significance, or in many languages.

example:
  fairseq-depthwise compare --ref test.de base.de deep.de
  fairseq-depthwise compare --ref test.de base1.de,base2.de,base3.de deep1.de,deep2.de,deep3.de
  fairseq-depthwise compare --languages --ref references base deep

With --languages, BASE and SYSTEM are folders with a file for each language: translations as for `score`
in LANG.hyp or LANG.txt, or the output of `score --json` in LANG.json. --ref is a folder of LANG.ref or
LANG.txt, to be left out if all are LANG.json. BLEU94 is the mean over the 94 languages of OPUS-100 that have a
test set, BLEU4 that over de, zh, br and te, WR the share of languages in which a system scores higher than
the base.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_json, positive_int, refuse_unread
from fairseq_depthwise.commands.score import (
    DEFAULT_METRICS,
    SCORING_OPTIONS,
    add_metric_options,
    chosen_metrics,
    read_system,
    score_system,
)
from fairseq_depthwise.evaluation import languages
from fairseq_depthwise.evaluation.scores import Score, TranslationMetric
from fairseq_depthwise.evaluation.significance import (
    DEFAULT_SAMPLES,
    DEFAULT_SEED,
    TESTS,
    difference_interval,
    paired_test,
    spread,
)
from fairseq_depthwise.evaluation.translations import Translations, read_reference
from fairseq_depthwise.tables import aligned, decimal, json_text

#: Options of the test; only what is on the command line is not None.
_TEST_OPTIONS = ("test", "samples", "seed")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "base", metavar="BASE", help="translations of the base; files of several seeds separated by commas"
    )
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="translations of a system to compare with it")
    parser.add_argument("--ref", action="append", metavar="REF", help="the reference; once for each of several")
    parser.add_argument("--languages", action="store_true", help="compare in many languages; see below")
    add_metric_options(parser)
    parser.add_argument(
        "--test",
        choices=tuple(TESTS),
        help="paired test of the i-th files of two systems (default: bootstrap)",
    )
    parser.add_argument(
        "--samples",
        type=positive_int,
        metavar="N",
        help="resamples or trials of the test (default: 1000; approximate-randomization: 10000)",
    )
    parser.add_argument(
        "--seed", type=positive_int, metavar="N", help=f"random seed of test and interval (default: {DEFAULT_SEED})"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    if options.languages:
        _compare_languages(options)
    else:
        _compare_systems(options)


# --- systems on one test set -----------------------------------------------------------------------------------------


@dataclass
class _System:
    """A system of one or several seeds.

    p values are of the i-th seeds of it and of the base; the interval is that of the mean difference from the base.
    """

    name: str
    files: list[Translations]
    scores: list[Score]
    seeds: dict[str, Any]
    p_values: list[float] = field(default_factory=list)
    interval: tuple[float, float] | None = None
    why_untested: str | None = None


def _compare_systems(options: argparse.Namespace) -> None:
    (metric,) = chosen_metrics([options.metric or DEFAULT_METRICS[0]], options)
    if metric.scores_answers:
        refuse_unread(options, _TEST_OPTIONS, f"with --metric {metric.name}, which has an exact test")
    test = options.test or "bootstrap"
    samples = options.samples or DEFAULT_SAMPLES[test]
    seed = options.seed or DEFAULT_SEED
    if not options.ref:
        raise UserError("--ref is missing; give the reference that all systems are scored against")
    references = [read_reference(path) for path in options.ref]
    # All systems are read and scored before the first test, which takes longer.
    names = [options.base, *options.systems]
    systems = [_scored_system(name, options, references, metric) for name in names]

    base, *compared = systems
    run_test = functools.partial(
        paired_test, references=references, metric=metric, test=test, samples=samples, seed=seed
    )
    for system in compared:
        _test_against(base, system, run_test)
        if system.why_untested is None:
            drawn = DEFAULT_SAMPLES["bootstrap"]
            system.interval = difference_interval(metric, system.scores, base.scores, samples=drawn, seed=seed)

    if options.json:
        documents = [_as_json(system, base) for system in systems]
        document = {
            "metric": metric.name,
            "signature": base.scores[0].signature,
            "references": options.ref,
            "samples": None if metric.scores_answers else samples,
            "sentences": base.scores[0].sentences,
            "test": "sign" if metric.scores_answers else test,
            "seed": None if metric.scores_answers else seed,
            "systems": documents,
        }
        print(json_text(document))
        return

    description = f"paired {test.replace('-', ' ')}, {samples:,} samples, seed {seed}"
    if metric.scores_answers:
        description = "exact sign test"
    print(aligned(_rows(systems)))
    print(f"{base.scores[0].name}: {base.scores[0].signature}")
    print(f"p: {description}, against {base.name}")
    print("95 % interval: of the difference, over bootstrap samples of sentences and seeds")
    for system in compared:
        if system.why_untested:
            print(system.why_untested)


def _scored_system(
    name: str, options: argparse.Namespace, references: Sequence[Sequence[str]], metric: TranslationMetric
) -> _System:
    """Read and score the files of a system: one that is called ``name``, or several separated by commas."""
    # A file's name may have a comma.
    paths = [name] if os.path.exists(name) else name.split(",")
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise UserError(f"{name} has a file twice, which would count as two seeds; give it once")
    files = [read_system(path, metric, options.detokenize) for path in paths]
    scores = [score_system(file, options.ref, references, metric) for file in files]
    seeds = spread([score.score for score in scores])
    return _System(name, files, scores, seeds)


def _test_against(base: _System, system: _System, run_test: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    """Test each seed of a system against that of the base, or note why this is impossible."""
    # The test is paired: the i-th files of both systems are of one seed.
    count, expected = len(system.files), len(base.files)
    if count != expected:
        system.why_untested = f"no paired test of {system.name}: numbers of files differ, {count} and {expected}"
        return
    pairs = zip(base.files, system.files, strict=True)
    for base_file, system_file in tqdm(pairs, f"test of {system.name}", count, leave=False, disable=None):
        system.p_values.append(run_test(base_file.sentences, system_file.sentences))


def _rows(systems: Sequence[_System]) -> list[list[str]]:
    """Return the printed table; the base is the first of the systems."""
    base = systems[0]
    # Without several seeds of any system, there are no columns for them.
    has_seeds = any(len(system.files) > 1 for system in systems)
    columns = ["files", "st. dev.", "lowest", "highest"] if has_seeds else []
    rows = [["system", base.scores[0].name, *columns, "difference", "95 % interval", "p"]]
    for system in systems:
        seeds = system.seeds
        row = [system.name, decimal(seeds["mean"], ".2f")]
        if has_seeds:
            row.append(str(len(system.files)))
            row += [decimal(seeds[name], ".2f") for name in ("standard_deviation", "lowest", "highest")]
        if system is not base:
            p_values = ", ".join(f"{p_value:.4f}" for p_value in system.p_values)
            interval = "-"
            if system.interval is not None:
                low, high = system.interval
                interval = f"{low:+.2f} to {high:+.2f}"
            row += [f"{seeds['mean'] - base.seeds['mean']:+.2f}", interval, p_values or "-"]
        rows.append(row)
    return rows


def _as_json(system: _System, base: _System) -> dict[str, Any]:
    document = {"name": system.name, "files": [file.path for file in system.files], **system.seeds}
    if system is not base:
        document["difference"] = system.seeds["mean"] - base.seeds["mean"]
        document["interval"] = system.interval
        document["p_values"] = system.p_values
        document["why_untested"] = system.why_untested
    return document


# --- many languages --------------------------------------------------------------------------------------------------

#: Name in a summary -> title of its row, and format of its numbers.
_MEANS = {
    "mean": ("mean over {languages}", ".2f"),
    "bleu94": ("BLEU94", ".2f"),
    "bleu4": ("BLEU4", ".2f"),
    "win_ratio": ("WR, %", ".1f"),
}


def _compare_languages(options: argparse.Namespace) -> None:
    """Print the scores of every language and their means; ``options`` are those of ``compare``."""
    folders = [options.base, *options.systems]
    files = {folder: languages.files_by_language(folder, languages.RESULT_ENDINGS) for folder in folders}
    references = _references_for(files, options)
    systems = [(folder, _scores_in(folder, files[folder], references, options)) for folder in folders]
    languages.require_comparable(systems)
    # The base is compared with no other, so it has no win ratio.
    base = systems[0][1]
    reasons = languages.why_missing(base)
    summaries = [languages.summarize(base)]
    summaries += [languages.summarize(scores, base) for _, scores in systems[1:]]

    if options.json:
        documents = []
        for (folder, scores), summary in zip(systems, summaries, strict=True):
            by_language = {language: score.score for language, score in scores.items()}
            documents.append({"folder": folder, **summary, "scores": by_language})
        document = {
            "metric": next(iter(base.values())).metric,
            "languages": len(base),
            "signatures": {language: score.signature for language, score in base.items()},
            "missing": reasons,
            "systems": documents,
        }
        print(json_text(document))
        return

    # A line for each language, then the means.
    rows = [["language", *folders]]
    for language in base:
        rows.append([language, *(decimal(scores[language].score, ".2f") for _, scores in systems)])
    for name, (title, form) in _MEANS.items():
        cells = [decimal(summary[name], form) for summary in summaries]
        rows.append([title.format(languages=len(base)), *cells])
    print(aligned(rows), end="")
    notes = [f"no {name.upper()}: {reason}" for name, reason in reasons.items() if reason]
    if notes:
        print("", *notes, sep="\n")


def _references_for(files: Mapping[str, Mapping[str, str]], options: argparse.Namespace) -> dict[str, str]:
    """Return the references by language; refuse options that are not read.

    Args:
        files: folder -> language -> file. Scores in LANG.json need no references.
    """
    refuse_unread(options, _TEST_OPTIONS, "with --languages, which tests nothing")
    for folder, by_language in files.items():
        if any(not path.endswith(".json") for path in by_language.values()):
            if not options.ref or len(options.ref) > 1:
                raise UserError(f"{folder} has translations, which need one folder of references; give it with --ref")
            return languages.files_by_language(options.ref[0], languages.REFERENCE_ENDINGS)
    refuse_unread(options, ("ref", *SCORING_OPTIONS), "where all files are LANG.json, which are scored already")
    return {}


def _scores_in(
    folder: str, files: Mapping[str, str], references: Mapping[str, str], options: argparse.Namespace
) -> dict[str, languages.LanguageScore]:
    """Read or compute the scores of a folder by language."""
    (metric,) = chosen_metrics([options.metric or DEFAULT_METRICS[0]], options)
    scores = {}
    for language, path in tqdm(files.items(), folder, unit=" languages", leave=False, disable=None):
        if path.endswith(".json"):
            score = languages.read_score(path)
            if options.metric not in (None, score.metric):
                raise UserError(f"--metric is {options.metric}, and {path} has a score of {score.metric}")
            scores[language] = score
            continue
        if language not in references:
            raise UserError(f"--ref {options.ref[0]} has no reference for {language}, which {folder} translates")
        reference = references[language]
        system = read_system(path, metric, options.detokenize)
        result = score_system(system, [reference], [read_reference(reference)], metric)
        scores[language] = languages.LanguageScore(result.score, metric.name, result.signature)
    return scores
